"""What a reader yields: documents with canonical text, and the reasons why others could not be read."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import orjson

#: Metadata and payload values: what JSON knows.
JsonValue = Any


def digest(*parts: bytes) -> str:
    """32 hex digits over the parts, unambiguous where one ends and the next begins."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()


@dataclass(frozen=True)
class Document:
    """One item of a source, read completely.

    doc_id: path relative to the source's root (with `/`), or the record's `id`.
    position: place in the enumeration, ascending from 0; of two records with one id the lower position wins.
    observation: number drawn from the ledger before the bytes were opened.
    text: canonical text; sanitized, not stripped. Spans refer to it.
    reader: name and version of what produced the text, e.g. "html/1"; part of the input hash.
    """

    doc_id: str
    position: int
    observation: int
    text: str
    reader: str
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @cached_property
    def input_hash(self) -> str:
        """Hash of all that reaches the model: the text and what produced it."""
        return digest(self.reader.encode(), self.text.encode())

    @cached_property
    def payload_hash(self) -> str:
        """Hash of what is stored beside the vectors and may change without embedding."""
        return digest(orjson.dumps(self.metadata, option=orjson.OPT_SORT_KEYS))

    @cached_property
    def is_empty(self) -> bool:
        """True when nothing in the text could be embedded: whitespace, BOM and zero-width characters only."""
        # the beginning decides as a rule, and translating a long text takes longer than hashing it
        return not (_visible(self.text[:100]) or _visible(self.text))


def _visible(text: str) -> str:
    return text.translate(_INVISIBLE).strip()


_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, record or folder that could not be read; it counts as seen and is never pruned for it.

    doc_id: as of Document; of a folder its relative path ending in `/` (all below it counts as seen).
    reason: one sentence for people, without a traceback.
    """

    doc_id: str
    position: int
    reason: str
    stage: str = "read"


class Draw(Protocol):
    """Gives the observation number; a reader calls it before it opens the bytes of a document."""

    def __call__(self) -> int: ...


class Source(Protocol):
    """A labelled origin of documents."""

    def read(self, draw: Draw) -> Iterator[Document | Unreadable]:
        """Yield every document in order of position; the end of the iterator means enumerated completely."""
        ...
