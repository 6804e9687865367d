"""Walking a folder: in order of name, streaming, and ending whatever links and special files it holds."""

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from embedctl.pipeline.readers.ignoring import FILE_NAME, IgnoreFiles
from embedctl.pipeline.readers.links import Elsewhere, Seen, resolve_link
from embedctl.pipeline.readers.problem import Problem, display_name, reason_of
from embedctl.pipeline.readers.rules import Rules, is_hidden

logger = logging.getLogger(__name__)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class File:
    """A file to be read. name: relative to the root, as the system spells it; path: where its bytes are."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is in the way. name: relative to the root; of a folder it ends in a slash."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Omission:
    """Something that is left out on purpose and counted. reason: one of the tally's."""

    name: str
    reason: str


Found = File | Obstacle | Omission


@dataclass(slots=True)
class _Folder:
    """An open folder of the walk. name: "" or ending in a slash; is_linked: reached through a link."""

    name: str
    path: str
    entries: Iterator[tuple[str, str]]
    ignore_files: IgnoreFiles
    is_linked: bool


class Walk:
    """One walk over a root, in the order of the names as strings: positions are the same in every run."""

    def __init__(self, root: str, rules: Rules) -> None:
        self._root = root
        self._rules = rules
        self._seen = Seen()
        # open folders, not recursion: depth costs memory only
        self._stack: list[_Folder] = []

    def __iter__(self) -> Iterator[Found]:
        """Raises Problem when the root itself cannot be listed."""
        self._open("", self._root, (), is_linked=False)
        while self._stack:
            entry = next(self._stack[-1].entries, None)
            if entry is None:
                self._stack.pop()
            elif not is_hidden(entry[0]):
                yield from self._visit(self._stack[-1], *entry)

    def _visit(self, folder: _Folder, name: str, kind: str) -> Iterator[Found]:
        full, path = folder.name + name, f"{folder.path}/{name}"
        if kind == "folder":
            yield from self._enter(folder, full, path, folder.is_linked)
        elif kind == "link":
            yield from self._follow(folder, full, path)
        elif self._rules.keeps_file(folder.ignore_files, full):
            if kind == "special":
                yield Obstacle(full, "It is a FIFO, socket or device, not a file.")
            elif not folder.is_linked or self._seen.is_new(path):
                yield File(full, path)

    def _enter(self, folder: _Folder, full: str, path: str, is_linked: bool) -> Iterator[Found]:
        if not self._rules.keeps_folder(folder.ignore_files, full):
            return
        if is_linked and not self._seen.is_new(path):
            return
        try:
            self._open(full + "/", path, folder.ignore_files, is_linked)
        except Problem as exc:
            yield Obstacle(full + "/", str(exc))

    def _follow(self, folder: _Folder, full: str, path: str) -> Iterator[Found]:
        try:
            target = resolve_link(self._root, path, self._rules)
        except Elsewhere as exc:
            if self._rules.keeps_file(folder.ignore_files, full):
                logger.info("Left out %s: %s", display_name(full), exc, extra={"action": "link_skipped"})
                yield Omission(full, str(exc))
        except Problem as exc:
            if self._rules.keeps_file(folder.ignore_files, full):
                yield Obstacle(full, str(exc))
        else:
            if target.is_folder:
                yield from self._enter(folder, full, target.path, is_linked=True)
            elif self._rules.keeps_file(folder.ignore_files, full) and self._seen.is_new(target.path):
                yield File(full, target.path)

    def _open(self, name: str, path: str, ignore_files: IgnoreFiles, is_linked: bool) -> None:
        try:
            entries, has_ignore_file = _list(path)
        except OSError as exc:
            raise Problem(reason_of(exc)) from exc
        if has_ignore_file:
            ignore_files = self._rules.enter(ignore_files, path, name)
        self._stack.append(_Folder(name, path, entries, ignore_files, is_linked))


def _list(path: str) -> tuple[Iterator[tuple[str, str]], bool]:
    """The entries of a folder with their kinds, and whether a .gitignore is among them.

    A folder sorts as its name with a slash: the walk's order is that of the full names. Only names are kept:
    that is what a folder of a million files costs.
    """
    names = []
    odd = {}
    fd = os.open(path, _FOLDER_FLAGS)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                kind = _kind(entry)
                names.append(entry.name + "/" if kind == "folder" else entry.name)
                if kind not in ("folder", "file"):
                    odd[entry.name] = kind
    finally:
        os.close(fd)
    names.sort()
    return _entries(names, odd), FILE_NAME in names


def _entries(names: list[str], odd: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name.endswith("/"):
            yield name[:-1], "folder"
        else:
            yield name, odd.get(name, "file")


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except FileNotFoundError:  # vanished just now: reading it says so
        return "file"
    return "file" if stat.S_ISREG(mode) else "special"
