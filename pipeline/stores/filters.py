"""Filters of Qdrant Edge from the few questions that embedctl asks."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import qdrant_edge as edge

from embedctl.pipeline.errors import StoreError
from embedctl.pipeline.stores.base import DocumentLimit

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def matching(source: str | None = None, doc_id: str | None = None) -> edge.Filter:
    """Points of this source and document, all of what is given."""
    fields = {"source": source, "doc_id": doc_id}
    return edge.Filter(must=[_equal(key, value) for key, value in fields.items() if value is not None])


def with_input_hashes(source: str, doc_id: str, input_hashes: Sequence[str]) -> edge.Filter:
    """Points of the document that have one of these input hashes."""
    hashes = edge.FieldCondition("input_hash", match=edge.MatchAny(list(input_hashes)))
    return edge.Filter(must=[_equal("source", source), _equal("doc_id", doc_id), hashes])


def older_than(limits: Sequence[DocumentLimit]) -> edge.Filter:
    """Points of any of these documents with a generation strictly below its limit."""
    return edge.Filter(should=[_older(limit) for limit in limits])


def equal_to(equals: Mapping[str, Any]) -> edge.Filter:
    """Points whose payload has exactly these values. Raises StoreError for what cannot be compared."""
    return edge.Filter(must=[_equal(key, value) for key, value in equals.items()])


def _older(limit: DocumentLimit) -> edge.Filter:
    below = edge.FieldCondition("generation", range=edge.RangeFloat(lt=float(limit.generation)))
    return edge.Filter(must=[_equal("source", limit.source), _equal("doc_id", limit.doc_id), below])


def _equal(key: str, value: Any) -> edge.FieldCondition | edge.IsNullCondition:
    path = _json_path(key)
    if value is None:
        return edge.IsNullCondition(path)
    if isinstance(value, bool):
        # a plain bool is taken for an integer by the bindings and matches nothing
        return edge.FieldCondition(path, match=edge.MatchValue(np.bool_(value)))  # type: ignore[arg-type]
    if isinstance(value, float):
        return edge.FieldCondition(path, range=edge.RangeFloat(gte=value, lte=value))
    if isinstance(value, str | int):
        return edge.FieldCondition(path, match=edge.MatchValue(value))
    raise StoreError(
        f"The field {key!r} can be compared with a text, a number, true, false or null, not with {value!r}."
    )


def _json_path(key: str) -> str:
    """Quote the parts that Edge would not read as they are."""
    parts = key.split(".")
    if not all(parts) or '"' in key or "\\" in key:
        raise StoreError(f"{key!r} is not the name of a payload field: write names with dots between them.")
    return ".".join(part if _PLAIN_KEY.fullmatch(part) else f'"{part}"' for part in parts)
