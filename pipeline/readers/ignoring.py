"""What .gitignore files exclude, with git's own rules: the nearest file decides, its last match wins."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from embedctl.pipeline.readers.problem import Problem
from embedctl.pipeline.readers.regular_file import read_file

FILE_NAME = ".gitignore"
MAX_BYTES = 4 * 1024 * 1024

#: The group of a pattern's regular expression that matches the slash after a folder's name.
_FOLDER_MARK = "ps_d"


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of one folder's .gitignore. base: the folder below the root, "" or ending in a slash."""

    base: str
    patterns: tuple[GitIgnoreSpecPattern, ...]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: excluded, False: kept, None: no pattern speaks of it. path: relative to the root."""
        below = path[len(self.base) :]
        for pattern in reversed(self.patterns):
            if _matches(pattern, below, is_folder):
                return pattern.include
        return None


#: Outermost first.
IgnoreFiles = tuple[IgnoreFile, ...]


def is_ignored(files: IgnoreFiles, path: str, is_folder: bool) -> bool:
    """True when git would not look at it; the folders above it were found to be kept already."""
    for file in reversed(files):
        verdict = file.verdict(path, is_folder)
        if verdict is not None:
            return verdict
    return False


def load_ignore_file(folder: str, base: str) -> IgnoreFile:
    """Read a folder's .gitignore. Raises Problem: what should stay out is unknown then."""
    try:
        content = read_file(f"{folder}/{FILE_NAME}", MAX_BYTES, sniff=False)
    except Problem as exc:
        raise Problem(f"Its {FILE_NAME} cannot be read, so what it excludes is unknown. {exc}") from exc
    # names of files are bytes: what is not UTF-8 is compared as os.listdir returns it
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
    return IgnoreFile(base, tuple(_compile(lines)))


def _compile(lines: Iterable[str]) -> Iterable[GitIgnoreSpecPattern]:
    for line in lines:
        try:
            pattern = GitIgnoreSpecPattern(line.rstrip("\r"))
        except (GitIgnorePatternError, re.error):  # git passes over such a line too
            continue
        if pattern.include is not None:
            yield pattern


def _matches(pattern: GitIgnoreSpecPattern, path: str, is_folder: bool) -> bool:
    """True when the pattern names this path itself, not only a folder above it.

    pathspec also answers for all below a matching folder: wrong where a nested file re-includes that.
    """
    regex = pattern.regex
    if regex is None:
        return False
    found = regex.search(path)
    if found is not None and found.lastgroup != _FOLDER_MARK:
        return True
    if not is_folder:
        return False
    return any(
        found.lastgroup == _FOLDER_MARK and found.end() == len(path) + 1
        for found in regex.finditer(path + "/")
    )
