"""Which files and folders of a root are read."""

import re

from pathspec import GitIgnoreSpec

from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.readers.ignoring import IgnoreFiles, is_ignored, load_ignore_file
from embedctl.pipeline.readers.options import ReaderOptions


class Rules:
    """Include and exclude patterns and .gitignore files. Paths are relative to the root, with slashes."""

    def __init__(self, options: ReaderOptions) -> None:
        self._include = _compile("include", options.include)
        self._exclude = _compile("exclude", options.exclude)
        self._use_gitignore = options.use_gitignore

    def enter(self, files: IgnoreFiles, path: str, base: str) -> IgnoreFiles:
        """The .gitignore files that hold in a folder which has one itself. path: where it is; base: its name.

        Raises Problem when that one cannot be read.
        """
        return (*files, load_ignore_file(path, base)) if self._use_gitignore else files

    def keeps_folder(self, files: IgnoreFiles, path: str) -> bool:
        if self._exclude is not None and self._exclude.match_file(path + "/"):
            return False
        return not is_ignored(files, path, is_folder=True)

    def keeps_file(self, files: IgnoreFiles, path: str) -> bool:
        if self._include is not None and not self._include.match_file(path):
            return False
        if self._exclude is not None and self._exclude.match_file(path):
            return False
        return not is_ignored(files, path, is_folder=False)


def is_hidden(name: str) -> bool:
    """True of .git, .embedctl, .gitignore and all other names with a dot in front."""
    return name.startswith(".")


def _compile(setting: str, patterns: tuple[str, ...]) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines(patterns) if patterns else None
    except (ValueError, re.error) as exc:
        raise ConfigurationError(f"{setting} has a pattern that is not valid: {exc}") from exc
