"""Symbolic links inside a folder that is read.

A link adds a document only when its target lies inside the root and is not read under its own name (it is
hidden or ignored: a Kubernetes ConfigMap, git-annex). So every real file has one id, which depends on the
files only, and a link to a folder above itself leads nowhere.
"""

import os
import stat
from dataclasses import dataclass

from embedctl.pipeline.readers.ignoring import FILE_NAME, IgnoreFiles
from embedctl.pipeline.readers.problem import Problem, display_name, reason_of
from embedctl.pipeline.readers.rules import Rules, is_hidden
from embedctl.pipeline.readers.tally import LINK_OUTSIDE, LINK_REPEATED


class Elsewhere(Exception):
    """The link is left out on purpose; the text is a reason of the tally."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a link leads. path: without links."""

    path: str
    is_folder: bool


class Seen:
    """Files and folders met through links; each is read once, under the first name in the walk's order."""

    def __init__(self) -> None:
        self._inodes: set[tuple[int, int]] = set()

    def is_new(self, path: str) -> bool:
        """True the first time; also for what cannot be looked at, so that reading it reports why."""
        try:
            status = os.lstat(path)
        except OSError:
            return True
        inode = status.st_dev, status.st_ino
        if inode in self._inodes:
            return False
        self._inodes.add(inode)
        return True


def resolve_link(root: str, path: str, rules: Rules) -> Target:
    """Where a link to be followed leads. Raises Elsewhere when it is left out, Problem when it is broken."""
    try:
        real = os.path.realpath(path, strict=True)
        mode = os.stat(real).st_mode
    except OSError as exc:
        raise Problem(_broken(path, exc)) from exc
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise Elsewhere(LINK_OUTSIDE)
    target = Target(real, stat.S_ISDIR(mode))
    if _is_read_by_itself(root, target, rules):
        raise Elsewhere(LINK_REPEATED)
    if not target.is_folder and not stat.S_ISREG(mode):
        raise Problem("It is a link to a FIFO, socket or device.")
    return target


def _broken(path: str, exc: OSError) -> str:
    try:
        goal = display_name(os.readlink(path))
    except OSError:
        return reason_of(exc)
    if isinstance(exc, FileNotFoundError):
        return f"It is a link to {goal}, which does not exist."
    return f"It is a link to {goal}, which cannot be followed. {reason_of(exc)}"


def _is_read_by_itself(root: str, target: Target, rules: Rules) -> bool:
    """True when the walk comes to the target without a link."""
    name = target.path[len(root.rstrip("/")) + 1 :]
    parts = name.split("/") if name else []
    if any(map(is_hidden, parts)):
        return False
    files: IgnoreFiles = ()
    folder = ""
    for part in parts[:-1] if not target.is_folder else parts:
        files = _enter(root, folder, files, rules)
        folder += part + "/"
        if not rules.keeps_folder(files, folder[:-1]):
            return False
    return target.is_folder or rules.keeps_file(_enter(root, folder, files, rules), name)


def _enter(root: str, folder: str, files: IgnoreFiles, rules: Rules) -> IgnoreFiles:
    path = os.path.join(root, folder.rstrip("/"))
    if not os.path.lexists(os.path.join(path, FILE_NAME)):
        return files
    try:
        return rules.enter(files, path, folder)
    except Problem:  # reported where the walk enters that folder
        return files
