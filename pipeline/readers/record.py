"""One line of JSON -> id, text and metadata."""

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from embedctl.pipeline.document import JsonValue
from embedctl.pipeline.readers.sanitize import NestedTooDeep, sanitize_json, sanitize_text

ID_FIELDS = ("_id", "id")
TEXT_FIELDS = ("text", "content")
MAX_ID_CHARS = 1024

_ID = re.compile(rb'"(?:_id|id)"\s*:\s*("(?:[^"\\]|\\.){1,2000}"|-?[0-9]{1,40})')
_ID_WITHIN_BYTES = 64 * 1024


class BadRecord(Exception):
    """The line is not a record; its text says why, without a full stop."""


@dataclass(frozen=True, slots=True)
class Record:
    """text: title and text, joined by one space. metadata: the title, and all fields but id and text."""

    id: str
    text: str
    metadata: dict[str, JsonValue]


def parse_record(line: bytes) -> Record:
    """Raises BadRecord."""
    fields = _load(line)
    if type(fields) is not dict:
        raise BadRecord(f"it holds {_kind(fields)}, not a JSON object")
    doc_id = _pop_id(fields)
    text = _pop_text(fields)
    title = fields.get("title")
    if type(title) is str and title:
        text = f"{title} {text}" if text else title
    try:
        metadata = {sanitize_text(key): sanitize_json(value) for key, value in fields.items()}
    except NestedTooDeep as exc:
        raise BadRecord(f"it is {exc}") from exc
    return Record(doc_id, sanitize_text(text), metadata)


def find_id(line: bytes) -> str | None:
    """The id of a record that cannot be read, so that its document still counts as seen."""
    match = _ID.search(line[:_ID_WITHIN_BYTES])
    if match is None:
        return None
    try:
        return sanitize_text(str(json.loads(match.group(1)))) or None
    except ValueError:
        return None


def _load(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        return _load_leniently(line, f"it is not valid JSON: {exc.msg}, column {exc.colno}")


def _load_leniently(line: bytes, complaint: str) -> Any:
    """Lone surrogates, NaN and huge numbers are no reason to lose a record: the standard library has them."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise BadRecord(
            f"it is not valid UTF-8: byte 0x{line[exc.start]:02x} at offset {exc.start}; set the encoding"
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise BadRecord(complaint) from exc


def _pop_id(fields: dict[str, Any]) -> str:
    for name in ID_FIELDS:
        value = fields.get(name)
        # not isinstance: true and false are integers to it
        if type(value) in (str, int, float) and (doc_id := sanitize_text(str(value))):
            del fields[name]
            return _checked_id(doc_id)
    raise BadRecord("it has no _id or id that is a text or a number")


def _checked_id(doc_id: str) -> str:
    # indexes of databases refuse long keys, at the end of a run rather than here
    if len(doc_id) > MAX_ID_CHARS:
        raise BadRecord(f"its id has {len(doc_id):,} characters; at most {MAX_ID_CHARS:,} are allowed")
    return doc_id


def _pop_text(fields: dict[str, Any]) -> str:
    for name in TEXT_FIELDS:
        if type(fields.get(name)) is str:
            return str(fields.pop(name))
    raise BadRecord("it has no text or content that is a text")


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
