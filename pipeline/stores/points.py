"""What a store accepts: checks that name the point at fault, and the split of large upserts."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from embedctl.pipeline.errors import StoreError
from embedctl.pipeline.stores.base import Collection, Points, Vectors

#: Points per update.
MAX_POINTS = 512
#: Bytes of vectors and payloads per update; the write-ahead log's segments hold 32 MiB.
MAX_UPDATE_BYTES = 12 << 20
#: Bytes of one point's payload as JSON.
MAX_PAYLOAD_BYTES = 8 << 20
#: Squared length from which a vector can be normalised in float32.
MIN_SQUARE = 1e-24
#: Hits of one search.
MAX_HITS = 10_000

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_points(collection: Collection, points: Points) -> list[bytes]:
    """Return the payloads as JSON. Raises StoreError naming the first point that cannot be stored."""
    if not len(points.ids) == len(points.vectors) == len(points.payloads):
        raise StoreError(
            f"{len(points.ids)} ids, {len(points.vectors)} vectors and {len(points.payloads)} payloads "
            "are not the same number."
        )
    for point_id in points.ids:
        if not isinstance(point_id, str) or not _UUID.fullmatch(point_id):
            raise StoreError(f"The point id {point_id!r} is not a UUID in its usual lower-case form.")
    check_vectors(collection, points.vectors, points.ids)
    return [_encode(point_id, payload) for point_id, payload in zip(points.ids, points.payloads, strict=True)]


def check_vectors(collection: Collection, vectors: Vectors, names: Sequence[str]) -> None:
    """vectors: (n, dim). Raises StoreError for a wrong dimension, a value not finite, a zero vector."""
    if not len(names):
        return
    if vectors.ndim != 2 or vectors.shape[1] != collection.dim:
        raise StoreError(
            f"The vectors of point {names[0]} and others have the shape {vectors.shape}, "
            f"the collection {collection.name!r} holds {collection.dim} dimensions."
        )
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    # a NaN or an infinity anywhere makes the sum of squares one too
    bad = np.flatnonzero(~(np.isfinite(squares) & (squares >= MIN_SQUARE)))
    if len(bad):
        what = "no length" if squares[bad[0]] < MIN_SQUARE else "a value that is not finite"
        raise StoreError(f"The vector of point {names[bad[0]]} has {what}.")


def split_points(points: Points, payloads: Sequence[bytes]) -> Iterator[slice]:
    """Consecutive slices of at most MAX_POINTS points and, unless one point is larger, MAX_UPDATE_BYTES."""
    start = size_bytes = 0
    for index, payload in enumerate(payloads):
        point_bytes = len(payload) + 4 * points.vectors.shape[1]
        if index > start and (index - start == MAX_POINTS or size_bytes + point_bytes > MAX_UPDATE_BYTES):
            yield slice(start, index)
            start, size_bytes = index, 0
        size_bytes += point_bytes
    if start < len(points):
        yield slice(start, len(points))


def _encode(point_id: str, payload: object) -> bytes:
    try:
        encoded = orjson.dumps(payload)
    except TypeError as exc:
        raise StoreError(f"The payload of point {point_id} is not JSON: {exc}.") from exc
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise StoreError(
            f"The payload of point {point_id} has {len(encoded):,} bytes, "
            f"at most {MAX_PAYLOAD_BYTES:,} can be stored: use smaller chunks or less metadata."
        )
    return encoded
