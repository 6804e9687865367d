"""What the store process answers: a request's header and tail in, a reply's header and tail out."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from embedctl.pipeline.errors import EmbedctlError, StoreError
from embedctl.pipeline.stores.base import Collection, DocumentLimit, Points, VectorStore
from embedctl.pipeline.stores.disk import disk_error
from embedctl.pipeline.stores.frames import BadFrame, Frame, vector_bytes

logger = logging.getLogger(__name__)

#: JSON value and vectors of a reply.
Result = tuple[Any, bytes]


def answer(store: VectorStore, request: Frame) -> tuple[bytes, bytes]:
    """Header and tail of the reply; what goes wrong is a reply too."""
    try:
        operation = OPERATIONS.get(str(request.header.get("op")))
        if operation is None:
            raise StoreError(f"The store process has no operation {request.header.get('op')!r}.")
        result, tail = operation(store, request)
        return result_reply(result), tail
    except EmbedctlError as exc:
        return error_reply(exc), b""
    except OSError as exc:
        logger.exception("A request failed", extra={"action": "request_failed"})
        return error_reply(disk_error(exc.filename or "of the store", exc)), b""
    except (BadFrame, KeyError, TypeError, ValueError) as exc:
        logger.exception("A request could not be answered", extra={"action": "request_failed"})
        return error_reply(
            StoreError(f"The store process could not answer {request.header.get('op')!r}: {exc!r}.")
        ), b""


def result_reply(result: Any) -> bytes:
    return orjson.dumps({"result": result})


def error_reply(error: EmbedctlError) -> bytes:
    return orjson.dumps({"error": {"type": type(error).__name__, "message": str(error)}})


def _collection(request: Frame) -> Collection:
    return Collection(**request.header["collection"])


def _create(store: VectorStore, request: Frame) -> Result:
    store.create_collection(_collection(request))
    return None, b""


def _has(store: VectorStore, request: Frame) -> Result:
    return store.has_collection(request.header["name"]), b""


def _drop(store: VectorStore, request: Frame) -> Result:
    store.drop_collection(_collection(request))
    return None, b""


def _upsert(store: VectorStore, request: Frame) -> Result:
    collection = _collection(request)
    vectors = request.vectors(collection.dim)
    points = Points(request.header["ids"], vectors, request.header["payloads"])
    store.upsert(collection, points, request.header["write_before"])
    return None, b""


def _delete_older(store: VectorStore, request: Frame) -> Result:
    limits = [DocumentLimit(*limit) for limit in request.header["limits"]]
    store.delete_older(_collection(request), limits)
    return None, b""


def _count(store: VectorStore, request: Frame) -> Result:
    return store.count(_collection(request), request.header["source"]), b""


def _count_document(store: VectorStore, request: Frame) -> Result:
    header = request.header
    return store.count_document(_collection(request), header["source"], header["doc_id"]), b""


def _find_vectors(store: VectorStore, request: Frame) -> Result:
    header = request.header
    found = store.find_vectors(
        _collection(request), header["source"], header["doc_id"], header["input_hashes"]
    )
    return list(found), b"".join(vector_bytes(vector) for vector in found.values())


def _search(store: VectorStore, request: Frame) -> Result:
    collection, header = _collection(request), request.header
    (vector,) = request.vectors(collection.dim)
    hits = store.search(collection, vector, header["limit"], header["equals"])
    return [(hit.point_id, hit.score, hit.payload) for hit in hits], b""


OPERATIONS: Mapping[str, Callable[[VectorStore, Frame], Result]] = {
    "create_collection": _create,
    "has_collection": _has,
    "drop_collection": _drop,
    "upsert": _upsert,
    "delete_older": _delete_older,
    "count": _count,
    "count_document": _count_document,
    "find_vectors": _find_vectors,
    "search": _search,
}
