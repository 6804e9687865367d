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
#: The cost of a pattern is a power of this in the depth of the path.
MAX_DOUBLE_STARS = 4

#: The group of a pattern's regular expression that matches the slash after a folder's name.
_FOLDER_MARK = "ps_d"

#: What pathspec makes of a star inside a name.
_STAR = "[^/]*"


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line. excludes: False when it starts with an exclamation mark."""

    regex: re.Pattern[str]
    excludes: bool

    def names(self, path: str, is_folder: bool) -> bool:
        """True when the pattern names this path itself, not only a folder above it.

        pathspec also answers for all below a matching folder: wrong where a nested file re-includes that.
        """
        found = self.regex.search(path)
        if found is not None and found.lastgroup != _FOLDER_MARK:
            return True
        if not is_folder:
            return False
        return any(
            found.lastgroup == _FOLDER_MARK and found.end() == len(path) + 1
            for found in self.regex.finditer(path + "/")
        )


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of one folder's .gitignore. base: the folder below the root, "" or ending in a slash."""

    base: str
    patterns: tuple[IgnorePattern, ...]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True: excluded, False: kept, None: no pattern speaks of it. path: relative to the root."""
        below = path[len(self.base) :]
        for pattern in reversed(self.patterns):
            if pattern.names(below, is_folder):
                return pattern.excludes
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


def _compile(lines: Iterable[str]) -> Iterable[IgnorePattern]:
    for line in lines:
        if line.split("/").count("**") > MAX_DOUBLE_STARS:
            raise Problem(f"Its {FILE_NAME} has a pattern with more than {MAX_DOUBLE_STARS} double stars.")
        try:
            regex, excludes = GitIgnoreSpecPattern.pattern_to_regex(line.rstrip("\r"))
            if regex is not None and excludes is not None:
                yield IgnorePattern(re.compile(_without_backtracking(regex)), excludes)
        except (GitIgnorePatternError, re.error):  # git passes over such a line too
            continue


def _without_backtracking(regex: str) -> str:
    """The same language in linear time; "*a*a*a*a*a*b" would otherwise need hours for a long name.

    Of several stars in one name, all but the last take the first place that fits and keep it.
    """
    first, *parts = regex.split(_STAR)
    return first + "".join(map(_committed, parts[:-1])) + "".join(_STAR + part for part in parts[-1:])


def _committed(part: str) -> str:
    """A star and what follows it; a slash or a group means that it is the last star of its name."""
    plain = re.sub(r"\\.", "", part).replace("[^/]", "")
    return _STAR + part if set("/()") & set(plain) else f"(?>{_STAR}?{part})"
