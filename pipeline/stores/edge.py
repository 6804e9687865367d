"""The embedded store: Qdrant Edge, one shard per collection, in this process."""

import fcntl
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge

from embedctl.pipeline.errors import CollectionMissing, EmbedctlError, StoreError, StoreUnavailable
from embedctl.pipeline.stores import filters
from embedctl.pipeline.stores.base import Collection, DocumentLimit, Hit, Points, Vectors
from embedctl.pipeline.stores.disk import disk_errors
from embedctl.pipeline.stores.facts import read_facts
from embedctl.pipeline.stores.points import MAX_HITS, check_points, check_vectors, split_points
from embedctl.pipeline.stores.shard import Shard

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
#: Documents per delete, and input hashes per look-up.
MAX_CONDITIONS = 100
#: Records per page when vectors are read back.
PAGE_POINTS = 1_000
_MAX_NAME_BYTES = 200


class EdgeStore:
    """VectorStore over the shards below `folder`, which no other process can open meanwhile.

    Raises StoreUnavailable when another process has it open, StoreError when the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shards: dict[str, Shard] = {}
        self._opening = threading.RLock()
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(folder)
        self._remove_dropped()

    # --- collections

    def create_collection(self, collection: Collection) -> None:
        folder = self._folder(collection.name)
        with self._opening, disk_errors(folder):
            facts = read_facts(folder)
            if facts is not None:
                facts.check(collection)
                return
            self._shards[collection.name] = Shard.create(folder, collection)
        logger.info("Made the collection %s", collection.name, extra={"action": "collection_created"})

    def has_collection(self, name: str) -> bool:
        return read_facts(self._folder(name)) is not None

    def drop_collection(self, collection: Collection) -> None:
        with self._opening:
            shard = self._shard(collection)
            shard.close()
            del self._shards[collection.name]
            with disk_errors(shard.folder):
                # one rename, so that a kill leaves no half of it behind
                dropped = self.folder / f".dropped-{uuid.uuid4().hex}"
                shard.folder.rename(dropped)
                shutil.rmtree(dropped, ignore_errors=True)

    # --- writes

    def upsert(self, collection: Collection, points: Points, deadline: float | None = None) -> None:
        shard = self._shard(collection)
        payloads = check_points(collection, points)
        for part in split_points(points, payloads):
            size_bytes = sum(map(len, payloads[part])) + 4 * points.vectors[part].size
            shard.update(partial(_upsert_of, points, part), part.stop - part.start, size_bytes, deadline)

    def delete_older(self, collection: Collection, limits: Sequence[DocumentLimit]) -> None:
        shard = self._shard(collection)
        for start in range(0, len(limits), MAX_CONDITIONS):
            older = filters.older_than(limits[start : start + MAX_CONDITIONS])
            num_points = self._count(shard, older)
            if num_points:
                shard.update(partial(edge.UpdateOperation.delete_points_by_filter, older), num_points)
                shard.note_dead(num_points)

    # --- reads

    def count(self, collection: Collection, source: str | None = None) -> int:
        return self._count(self._shard(collection), filters.matching(source))

    def count_document(self, collection: Collection, source: str, doc_id: str) -> int:
        return self._count(self._shard(collection), filters.matching(source, doc_id))

    def find_vectors(
        self, collection: Collection, source: str, doc_id: str, input_hashes: Sequence[str]
    ) -> dict[str, Vectors]:
        shard = self._shard(collection)
        found: dict[str, Vectors] = {}
        wanted = list(dict.fromkeys(input_hashes))
        for start in range(0, len(wanted), MAX_CONDITIONS):
            page = filters.with_input_hashes(source, doc_id, wanted[start : start + MAX_CONDITIONS])
            found |= _scroll_vectors(shard, page)
        return found

    def search(
        self, collection: Collection, vector: Vectors, limit: int, equals: Mapping[str, Any] | None = None
    ) -> list[Hit]:
        shard = self._shard(collection)
        if not 1 <= limit <= MAX_HITS:
            raise StoreError(f"The limit {limit} is not between 1 and {MAX_HITS}.")
        check_vectors(collection, np.asarray(vector, np.float32).reshape(1, -1), ["of the query"])
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(vector.tolist()),
            filter=filters.equal_to(equals) if equals else None,
            with_payload=True,
        )
        points = shard.use(lambda opened: opened.query(request))
        return [Hit(str(point.id), point.score, point.payload or {}) for point in points]

    # --- life

    def has_ended(self, owner: str) -> bool:
        """True for every process that is gone: this one has had the folder for itself since it opened it."""
        return True

    def shards(self) -> list[Shard]:
        """Those opened so far."""
        with self._opening:
            return list(self._shards.values())

    def close(self) -> None:
        with self._opening:
            for shard in self._shards.values():
                try:
                    shard.close()
                except EmbedctlError as exc:
                    # nothing is lost: what was acknowledged is in the log
                    logger.warning("Closing %s: %s", shard.path, exc, extra={"action": "close_failed"})
            self._shards.clear()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _shard(self, collection: Collection) -> Shard:
        shard = self._shards.get(collection.name) or self._open(collection.name)
        shard.facts.check(collection)
        return shard

    def _open(self, name: str) -> Shard:
        with self._opening:
            if self._lock < 0:
                raise StoreUnavailable("The vector store was closed.")
            if name not in self._shards:
                folder = self._folder(name)
                facts = read_facts(folder)
                if facts is None:
                    raise CollectionMissing(
                        f"There is no collection {name!r} in the store {self.folder}; "
                        "run `embedctl index` for its sources again."
                    )
                self._shards[name] = Shard(folder, facts)
            return self._shards[name]

    def _folder(self, name: str) -> Path:
        encoded = os.fsencode(name)
        if not name or name.startswith(".") or "/" in name or "\0" in name or len(encoded) > _MAX_NAME_BYTES:
            raise StoreError(
                f"{name!r} cannot name a collection: "
                f"no '/', no '.' in front, at most {_MAX_NAME_BYTES} bytes."
            )
        return self.folder / name

    def _remove_dropped(self) -> None:
        for path in self.folder.glob(".dropped-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _count(self, shard: Shard, where: edge.Filter) -> int:
        return shard.use(lambda opened: opened.count(edge.CountRequest(exact=True, filter=where)))


def lock_folder(folder: Path) -> int:
    """Take the folder for this process; the lock ends with the returned descriptor or the process, however it
    ends."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise StoreUnavailable(f"The vector store in {folder} is open in another process.") from exc
    return descriptor


def _upsert_of(points: Points, part: slice) -> edge.UpdateOperation:
    return edge.UpdateOperation.upsert_points(_edge_points(points, part))


def _edge_points(points: Points, part: slice) -> list[edge.Point]:
    """Edge reads any sequence of floats: rows as memoryviews take half the time of lists made first."""
    rows = np.ascontiguousarray(points.vectors[part], np.float32)
    try:
        return [
            edge.Point(point_id, memoryview(row), dict(payload))  # type: ignore[arg-type]
            for point_id, row, payload in zip(points.ids[part], rows, points.payloads[part], strict=True)
        ]
    except (TypeError, ValueError, OverflowError) as exc:
        raise StoreError(
            f"One of the points {points.ids[part.start]} and following cannot be stored: {exc}"
        ) from exc


def _scroll_vectors(shard: Shard, where: edge.Filter) -> dict[str, Vectors]:
    found: dict[str, Vectors] = {}
    offset = None
    while True:
        request = edge.ScrollRequest(
            offset=offset, limit=PAGE_POINTS, filter=where, with_payload=["input_hash"], with_vector=True
        )
        records, offset = shard.use(partial(edge.EdgeShard.scroll, scroll=request))
        for record in records:
            found[(record.payload or {})["input_hash"]] = np.asarray(record.vector, np.float32)
        if offset is None:
            return found
