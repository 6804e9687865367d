"""Why something could not be read, said once for people."""

import errno

_SENTENCES = {
    errno.ENOENT: "It vanished between listing and reading.",
    errno.EACCES: "Permission denied.",
    errno.EPERM: "Permission denied.",
    errno.ELOOP: "It became a symbolic link, or a loop of them, between listing and reading.",
    errno.ENOTDIR: "It vanished between listing and reading.",
    errno.ENXIO: "It is a socket or a device, not a file.",
    errno.ENAMETOOLONG: "Its path is longer than the system allows.",
    errno.EIO: "The disk reported an input/output error.",
    errno.ESTALE: "The network file system lost it (stale handle).",
}


class Problem(Exception):
    """One file, folder or record cannot be read; its text is the reason, one sentence."""


class NotText(Problem):
    """The file holds binary data."""


def reason_of(exc: OSError) -> str:
    """The sentence for an error of the operating system."""
    known = _SENTENCES.get(exc.errno or 0)
    return known or f"The system says: {exc.strerror or exc}."


def display_name(path: str) -> str:
    """A path as an id: bytes that are not UTF-8 are written as \\xNN, so that ids stay different and safe."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
