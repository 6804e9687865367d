"""Where the store process of an embedctl folder is found: its socket, its log, its data."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from embedctl.pipeline.errors import StoreError

#: Bytes of a socket's path that every system takes (macOS 104, Linux 108, the ending zero included).
MAX_SOCKET_PATH_BYTES = 100
#: Where sockets of folders with longer paths go. Not the temporary folder of the environment, which two
#: commands could have set differently and would then not find each other.
SHARED_TEMP = Path("/tmp")


@dataclass(frozen=True, slots=True)
class Address:
    """folder: the embedctl folder, absolute, without symbolic links."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> "Address":
        return cls(Path(os.path.realpath(folder)))

    @property
    def data(self) -> Path:
        """The folder of the EdgeStore."""
        return self.folder / "store"

    @property
    def log(self) -> Path:
        return self.folder / "store.log"

    @property
    def socket(self) -> Path:
        """In the embedctl folder; where that path is too long, in a folder of ours in /tmp, named by a hash
        of the path."""
        path = self.folder / "store.sock"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            return path
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:24]
        return _private_temp() / f"{name}.sock"

    def prepare(self) -> None:
        """Make the folders. Raises StoreError when the one for long paths belongs to somebody else."""
        self.folder.mkdir(parents=True, exist_ok=True)
        parent = self.socket.parent
        if parent != self.folder:
            parent.mkdir(mode=0o700, exist_ok=True)
            _require_private(parent)


def _private_temp() -> Path:
    return SHARED_TEMP / f"embedctl-{os.getuid()}"


def _require_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreError(
            f"{folder} is not a folder that only you can open: "
            "remove it, or use an embedctl folder with a shorter path."
        )
