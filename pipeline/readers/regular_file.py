"""Reading one file that someone else may change, replace or turn into something that is not a file."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from embedctl.pipeline.readers.content import looks_binary
from embedctl.pipeline.readers.problem import NotText, Problem, reason_of

#: O_NONBLOCK: opening a FIFO never waits for its writer. O_NOFOLLOW: what became a link is not followed.
OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
SNIFF_BYTES = 8192

Identity = tuple[int, int, int, int]


def read_file(path: str, max_bytes: int, sniff: bool) -> bytes:
    """The content, the same at the start and the end of reading.

    sniff: give up after the first kilobytes when they are binary. Raises NotText, and Problem for all else.
    """
    try:
        with open_regular(path) as fd:
            return _read_stable(fd, max_bytes, sniff)
    except OSError as exc:
        raise Problem(reason_of(exc)) from exc


@contextmanager
def open_regular(path: str) -> Iterator[int]:
    """A file descriptor of a regular file. Raises Problem when it is something else, and OSError."""
    fd = os.open(path, OPEN_FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Problem("It is a FIFO, socket or device, not a file.")
        yield fd
    finally:
        os.close(fd)


def identity(fd: int) -> Identity:
    """What changes when the file's content does: device, inode, size and modification time."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read_stable(fd: int, max_bytes: int, sniff: bool) -> bytes:
    if sniff and looks_binary(os.pread(fd, SNIFF_BYTES, 0)):
        raise NotText
    for _ in range(2):
        before = identity(fd)
        content = _read_all(fd, before[2], max_bytes)
        if identity(fd) == before:
            return content
        os.lseek(fd, 0, os.SEEK_SET)
    raise Problem("It changed while it was being read, twice; run again when nothing writes to it.")


def _read_all(fd: int, size: int, max_bytes: int) -> bytes:
    parts = []
    num_bytes = 0
    # one byte more than expected: the end is seen without another large buffer
    while part := os.read(fd, min(max(size - num_bytes, 0), max_bytes) + 1):
        parts.append(part)
        num_bytes += len(part)
        if max(num_bytes, size) > max_bytes:
            raise Problem(f"It has {max(num_bytes, size):,} bytes; max_document_bytes is {max_bytes:,}.")
    return b"".join(parts)
