"""The store of one embedctl folder as commands use it: over a socket, from a process that is started when it
is needed."""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

import embedctl
from embedctl.pipeline import errors
from embedctl.pipeline.errors import EmbedctlError, StoreError, StoreUnavailable
from embedctl.pipeline.stores.address import Address
from embedctl.pipeline.stores.base import Collection, DocumentLimit, Hit, Points, Vectors
from embedctl.pipeline.stores.frames import PROTOCOL, BadFrame, Frame, receive_frame, send_frame, vector_bytes
from embedctl.pipeline.stores.points import check_points, check_vectors, split_points
from embedctl.pipeline.stores.starter import Starter

logger = logging.getLogger(__name__)

#: Tries of one request when the connection breaks; each may have to start the process.
MAX_ATTEMPTS = 6
#: Seconds of the first pause between two tries; it doubles, with jitter.
BACKOFF_S = 0.05
#: Seconds that a call may take with all its tries. Opening a shard after a kill replays its log, for seconds.
TIMEOUT_S = 30.0
HELLO_S = 15.0
#: Input hashes per look-up, so that their vectors fit into a frame.
MAX_HASHES = 1_000
#: Documents per delete.
MAX_LIMITS = 1_000


class StoreClient:
    """VectorStore in the store process of `folder`, the embedctl folder.

    owner: names this process among all that ever write here; `has_ended` is asked about it. Threads may share
    a client: each request takes a connection for itself, from those that are free or a new one. When the
    process dies, its requests are sent again to the next one, which is harmless because every request is
    idempotent.
    """

    def __init__(self, folder: Path, owner: str, idle_s: float = 60.0, timeout_s: float = TIMEOUT_S) -> None:
        """timeout_s: of one call, tries and parts included; after it nothing of the call is still sent."""
        self.address = Address.of(folder)
        self.owner = owner
        self._timeout_s = timeout_s
        self._starter = Starter(self.address, idle_s)
        self._lock = threading.Lock()
        self._free: list[socket.socket] = []

    # --- collections

    def create_collection(self, collection: Collection) -> None:
        self._request("create_collection", collection=asdict(collection))

    def has_collection(self, name: str) -> bool:
        return bool(self._request("has_collection", name=name).header["result"])

    def drop_collection(self, collection: Collection) -> None:
        self._request("drop_collection", collection=asdict(collection))

    # --- writes

    def upsert(self, collection: Collection, points: Points, deadline: float | None = None) -> None:
        payloads = check_points(collection, points)
        give_up_at = time.monotonic() + self._timeout_s
        deadline = give_up_at if deadline is None else min(deadline, give_up_at)
        for part in split_points(points, payloads):
            self._request(
                "upsert",
                vector_bytes(points.vectors[part]),
                deadline,
                collection=asdict(collection),
                # a request that is given up here may still wait there
                write_before=deadline,
                ids=points.ids[part],
                payloads=[orjson.Fragment(payload) for payload in payloads[part]],
            )

    def delete_older(self, collection: Collection, limits: Sequence[DocumentLimit]) -> None:
        triples = [(limit.source, limit.doc_id, limit.generation) for limit in limits]
        for start in range(0, max(1, len(triples)), MAX_LIMITS):
            part = triples[start : start + MAX_LIMITS]
            self._request("delete_older", collection=asdict(collection), limits=part)

    # --- reads

    def count(self, collection: Collection, source: str | None = None) -> int:
        return int(self._request("count", collection=asdict(collection), source=source).header["result"])

    def count_document(self, collection: Collection, source: str, doc_id: str) -> int:
        reply = self._request("count_document", collection=asdict(collection), source=source, doc_id=doc_id)
        return int(reply.header["result"])

    def find_vectors(
        self, collection: Collection, source: str, doc_id: str, input_hashes: Sequence[str]
    ) -> dict[str, Vectors]:
        found: dict[str, Vectors] = {}
        for start in range(0, max(1, len(input_hashes)), MAX_HASHES):
            reply = self._request(
                "find_vectors",
                collection=asdict(collection),
                source=source,
                doc_id=doc_id,
                input_hashes=list(input_hashes[start : start + MAX_HASHES]),
            )
            found |= zip(reply.header["result"], reply.vectors(collection.dim), strict=True)
        return found

    def search(
        self, collection: Collection, vector: Vectors, limit: int, equals: Mapping[str, Any] | None = None
    ) -> list[Hit]:
        row = np.asarray(vector, np.float32).reshape(1, -1)
        check_vectors(collection, row, ["of the query"])
        reply = self._request(
            "search", vector_bytes(row), collection=asdict(collection), limit=limit, equals=dict(equals or {})
        )
        return [Hit(point_id, score, payload) for point_id, score, payload in reply.header["result"]]

    # --- life

    def has_ended(self, owner: str) -> bool:
        return bool(self._request("has_ended", owner=owner).header["result"])

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for peer in free:
            peer.close()

    # --- requests

    def _request(self, op: str, tail: bytes = b"", deadline: float | None = None, **arguments: Any) -> Frame:
        header = _encode({"op": op} | arguments)
        deadline = deadline or time.monotonic() + self._timeout_s
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                time.sleep(BACKOFF_S * 2**attempt * (0.5 + random.random()))
            try:
                return self._exchange(header, tail, deadline)
            except TimeoutError as exc:
                raise self._unavailable(f"did not answer within {self._timeout_s:.0f} s") from exc
            except (OSError, EOFError) as exc:
                logger.info("The store process went away: %s", exc, extra={"action": "store_lost"})
        raise self._unavailable(f"went away {MAX_ATTEMPTS} times in a row")

    def _exchange(self, header: bytes, tail: bytes, deadline: float) -> Frame:
        peer = self._take()
        try:
            peer.settimeout(_seconds_until(deadline))
            send_frame(peer, header, tail)
            reply = receive_frame(peer)
            if reply is None:
                raise EOFError("it closed the connection")
        except BadFrame as exc:
            peer.close()
            raise StoreError(
                f"The store process and this command do not understand each other: {exc}"
            ) from exc
        except BaseException:
            peer.close()
            raise
        with self._lock:
            self._free.append(peer)
        return _checked(reply)

    def _take(self) -> socket.socket:
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._starter.connect(self._welcomed)

    def _welcomed(self) -> socket.socket:
        """A connection whose hello was answered. Raises OSError or EOFError when no process is there."""
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.settimeout(HELLO_S)
            peer.connect(os.fspath(self.address.socket))
            send_frame(
                peer, orjson.dumps({"hello": PROTOCOL, "version": embedctl.__version__, "owner": self.owner})
            )
            reply = receive_frame(peer)
            if reply is None:
                raise EOFError("it closed the connection")
            _checked(reply)
        except BadFrame as exc:
            peer.close()
            raise StoreError(
                f"{self.address.socket} is not the socket of an embedctl store process."
            ) from exc
        except BaseException:
            peer.close()
            raise
        return peer

    def _unavailable(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(f"The store process {what}; its log is {self.address.log}.")


def _seconds_until(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _encode(header: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(header)
    except TypeError as exc:
        raise StoreError(f"The request cannot be sent to the store: {exc}.") from exc


def _checked(reply: Frame) -> Frame:
    """Raise the error that a reply carries, as the class it was in the store process."""
    error = reply.header.get("error")
    if error is None:
        return reply
    raise _error_class(str(error.get("type")))(str(error.get("message")))


def _error_class(name: str) -> type[EmbedctlError]:
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, EmbedctlError) else StoreError
