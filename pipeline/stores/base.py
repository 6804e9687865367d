"""The interface of a vector store, and the records that pass through it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as its writers and readers name it: every request carries it, so that a store can refuse a
    foreign one.

    dim: length of its vectors. metric: "cosine" or "dot". ledger: id of the ledger that owns it.
    """

    name: str
    index: str
    version: str
    space: str
    ledger: str
    dim: int
    metric: str = "cosine"


@dataclass(frozen=True, slots=True)
class Points:
    """Points to be written. ids: UUID strings; vectors: (n, dim) float32, finite; payloads: JSON objects."""

    ids: Sequence[str]
    vectors: Vectors
    payloads: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class DocumentLimit:
    """A document and a generation: deletes take what is strictly older, counts take what is exactly it."""

    source: str
    doc_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One point found by a search; score as the metric says, higher is nearer."""

    point_id: str
    score: float
    payload: Mapping[str, Any]


class VectorStore(Protocol):
    """Where vectors live. Every call is acknowledged: it has happened, durably, when it returns.

    Each method that takes a Collection raises CollectionMissing when the store has none of that name, and
    ForeignCollection when the stored space, version, index, ledger, dimension or metric differs, also where
    dimensions are equal. StoreUnavailable is retryable (the store is down or restarting), DiskFull says so,
    any other StoreError is final for this request.
    """

    def create_collection(self, collection: Collection) -> None:
        """Make the collection with its payload indexes; nothing happens when the same one exists already."""
        ...

    def has_collection(self, name: str) -> bool: ...

    def drop_collection(self, collection: Collection) -> None: ...

    def upsert(self, collection: Collection, points: Points, deadline: float | None = None) -> None:
        """Write the points, replacing those of equal id. Split by bytes and count inside.

        deadline: by time.monotonic(), which the processes of a machine share. Nothing is written after it,
        wherever the request was held up: StoreUnavailable.
        """
        ...

    def delete_older(self, collection: Collection, limits: Sequence[DocumentLimit]) -> None:
        """Of each document delete the points whose generation is below the limit's, and no others."""
        ...

    def count(self, collection: Collection, source: str | None = None) -> int:
        """Exact number of points, of one source or of all."""
        ...

    def count_document(self, collection: Collection, source: str, doc_id: str) -> int:
        """Exact number of points of one document, all generations."""
        ...

    def find_vectors(
        self, collection: Collection, source: str, doc_id: str, input_hashes: Sequence[str]
    ) -> dict[str, Vectors]:
        """Stored vectors of the document's chunks with these input hashes (any generation): hash -> (dim,)
        float32."""
        ...

    def search(
        self, collection: Collection, vector: Vectors, limit: int, equals: Mapping[str, Any] | None = None
    ) -> list[Hit]:
        """The nearest points, best first. vector: (dim,) float32; equals: payload field (dotted) -> exact
        value."""
        ...

    def has_ended(self, owner: str) -> bool:
        """True when no request of this client, whose process is gone, can still take effect. False: not
        known."""
        ...

    def close(self) -> None: ...
