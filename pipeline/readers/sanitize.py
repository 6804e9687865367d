"""The one place where text is made safe for databases, tokenizers and JSON."""

import math
import re

from embedctl.pipeline.document import JsonValue

#: Levels of lists and objects inside a metadata value.
MAX_NESTING = 32

_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_INT64 = 2**63


class NestedTooDeep(ValueError):
    """A value has more levels of lists and objects than metadata may have."""


def sanitize_text(text: str) -> str:
    """Replace NUL (PostgreSQL refuses it) and lone surrogates (UTF-8 has none) by U+FFFD; offsets stay."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSAFE.sub("\ufffd", text)


def sanitize_json(value: JsonValue, depth: int = 0) -> JsonValue:
    """The value with safe strings and keys, and numbers that every store can hold.

    Integers beyond 64 bits become floating point, as in most JSON parsers; NaN and infinities become null.
    Raises NestedTooDeep.
    """
    match value:
        case str():
            return sanitize_text(value)
        case None | bool():
            return value
        case int():
            return value if -_INT64 <= value < _INT64 else _wide_number(value)
        case float():
            return value if math.isfinite(value) else None
    if depth == MAX_NESTING:
        raise NestedTooDeep(f"nested deeper than {MAX_NESTING} levels")
    if isinstance(value, dict):
        return {sanitize_text(str(key)): sanitize_json(item, depth + 1) for key, item in value.items()}
    return [sanitize_json(item, depth + 1) for item in value]


def _wide_number(value: int) -> float | str:
    try:
        return float(value)
    except OverflowError:
        return str(value)
