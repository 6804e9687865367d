"""Names that users choose, and what they may look like: they become names of collections, files and
aliases."""

import re
from pathlib import Path

from embedctl.pipeline.errors import UsageError

#: `__` separates index and version in a collection's name.
INDEX_PATTERN = r"^[A-Za-z0-9]([_-]?[A-Za-z0-9]|-)*$"
VERSION_PATTERN = r"^[A-Za-z0-9]([_.-]?[A-Za-z0-9]|[.-])*$"
MAX_LENGTH = 63


def checked_index(name: str) -> str:
    """The name, or a UsageError that says what an index may be called."""
    if len(name) > MAX_LENGTH or not re.fullmatch(INDEX_PATTERN, name):
        raise UsageError(
            f"{name!r} cannot be the name of an index: take letters, digits, - and _, but no __, at most "
            f"{MAX_LENGTH}."
        )
    return name


def checked_version(label: str) -> str:
    """The label, or a UsageError that says what a version may be called."""
    if len(label) > MAX_LENGTH or not re.fullmatch(VERSION_PATTERN, label):
        raise UsageError(
            f"{label!r} cannot be the label of a version: take letters, digits, ., - and _, but no __, at "
            f"most {MAX_LENGTH}."
        )
    return label


def checked_path(path: Path) -> Path:
    """The path, or a UsageError when its name is not text: the ledger could not remember it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise UsageError(f"The path {shown} has bytes that are not UTF-8; rename it.") from None
    return path


def checked_source(label: str) -> str:
    """The label, or a UsageError that says how to give another."""
    if not label or len(label) > 255 or "/" in label or not label.isprintable():
        raise UsageError(
            f"{label!r} cannot be the label of a source: give another, without / and at most 255 long, "
            "with `--source NAME`."
        )
    return label
