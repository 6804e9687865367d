"""Room on the disk, and what the system says when there is none."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedctl.pipeline.errors import DiskFull, StoreError

#: Bytes that stay free. The store's files are mapped into memory and sparse: running into a full disk there
#: is no error but the end of the process (SIGBUS), so writes are refused before it comes to that.
RESERVE_BYTES = 64 << 20
#: Bytes that must be free to open a shard, which may have to replay its log.
OPEN_BYTES = 16 << 20

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}


def require_room(folder: Path, num_bytes: int) -> None:
    """Raise DiskFull unless that much is free where the folder is."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise DiskFull(
            f"The disk that holds {folder} has {free >> 20:,} MiB left, {num_bytes >> 20:,} MiB are needed: "
            "free some and run the command again, nothing is lost."
        )


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Translate what the system refuses below this folder."""
    try:
        yield
    except OSError as exc:
        raise disk_error(folder, exc) from exc


def disk_error(folder: Path | str, exc: OSError) -> StoreError | DiskFull:
    """The error that says in a sentence what the system refused."""
    if exc.errno in _FULL:
        return DiskFull(
            f"The disk that holds {folder} is full: free some and run the command again, nothing is lost."
        )
    if exc.errno in _REFUSED:
        return StoreError(
            f"The folder {folder} cannot be written ({exc.strerror}): make it writable or choose another."
        )
    return StoreError(f"The folder {folder} cannot be used: {exc.strerror or exc}.")
