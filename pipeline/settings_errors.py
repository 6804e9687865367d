"""What is said about a setting that is refused: its key, where it was set, its value, what is allowed."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

Fields = Mapping[str, FieldInfo]

#: Beginnings of pydantic's error types, in the words of this program.
_WORDS = {
    "int_": "is not an integer",
    "float_": "is not a number",
    "finite_number": "is not a finite number",
    "byte_size": "is not a size",
    "greater_than": "is too small",
    "less_than": "is too large",
    "string_too_long": "is too long",
    "string_type": "is not a text",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Values that were set in one place: the environment, whose names have a prefix, or a file."""

    values: Mapping[str, Any]
    prefix: str = ""
    file: Path | None = None

    def name(self, key: str) -> str:
        return f"{self.prefix}{key.upper()}" if self.prefix else key

    @property
    def place(self) -> str:
        return f" in {self.file}" if self.file else ""


def complaints(error: ValidationError, fields: Fields, origins: Sequence[Origin]) -> Iterator[str]:
    """One line per refused value. origins: the strongest first; a key in none of them has its default."""
    for detail in error.errors(include_url=False):
        key = str(detail["loc"][0])
        origin = next((origin for origin in origins if key in origin.values), None)
        if detail["type"] == "extra_forbidden":
            yield f"{key}{origin.place if origin else ''} {nearest(key, fields)}"
        elif detail["type"] != "default_factory_not_called":  # that one follows from another complaint
            subject = _subject(key, fields[key], origin, detail["input"])
            yield f"{subject} {_reason(detail)}; allowed: {_allowed(fields[key])}"


def nearest(key: str, names: Iterable[str], prefix: str = "") -> str:
    """Say that the key is no setting, and which one was probably meant."""
    near = difflib.get_close_matches(key.lower().replace("-", "_"), names, n=1, cutoff=0.5)
    if not near:
        return "is not a setting; the settings are " + ", ".join(names)
    return f"is not a setting; did you mean {Origin({}, prefix).name(near[0])}?"


def _subject(key: str, field: FieldInfo, origin: Origin | None, default: object) -> str:
    if origin is None:
        return f"{key}{_shown(field, default)} (the default)"
    return f"{origin.name(key)}{_shown(field, origin.values[key])}{origin.place}"


def _shown(field: FieldInfo, value: object) -> str:
    if "Secret" in repr(field.annotation):
        return " (value hidden)"
    text = repr(str(value) if isinstance(value, Path) else value)
    return "=" + (text if len(text) <= 80 else text[:76] + "...")


def _allowed(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else ""


def _reason(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":  # raised by a validator of ours, in our own words
        return str(detail["ctx"]["error"])
    words = (words for beginning, words in _WORDS.items() if detail["type"].startswith(beginning))
    return next(words, "is not valid")
