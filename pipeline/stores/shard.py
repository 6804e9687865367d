"""One open shard of Qdrant Edge: a collection's points, written through a log that survives a crash."""

import glob
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import qdrant_edge as edge

from embedctl.pipeline.errors import DiskFull, EmbedctlError, StoreError, StoreUnavailable
from embedctl.pipeline.stores.base import Collection
from embedctl.pipeline.stores.disk import OPEN_BYTES, RESERVE_BYTES, disk_errors, require_room
from embedctl.pipeline.stores.facts import Facts, sync_path, sync_tree, write_facts

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Points that may be in the log only; more are flushed, so that opening after a kill replays for a second or
#: two at most.
MAX_UNFLUSHED = 16_384
#: Bytes on disk per byte of an update: log, vectors or payload, index.
DISK_FACTOR = 4
#: Kilobytes of vectors in a segment from which `optimize` builds a graph for it.
INDEXING_THRESHOLD_KB = 1_000

#: Fields with an index, made before there are points: what deletes and counts filter by. Finding vectors by
#: input hash reads one document's points, which `doc_id` finds; an index of its own costs 10 us per point and
#: gains nothing.
PAYLOAD_INDEXES = {
    "source": edge.PayloadSchemaType.Keyword,
    "doc_id": edge.PayloadSchemaType.Keyword,
    "generation": edge.PayloadSchemaType.Integer,
}
_DISTANCES = {"cosine": edge.Distance.Cosine, "dot": edge.Distance.Dot}


def shard_config(dim: int, metric: str, num_indexing_threads: int = 1) -> edge.EdgeConfig:
    """How a collection's shard is stored. Raises StoreError for an unknown metric."""
    if metric not in _DISTANCES:
        raise StoreError(f"The metric {metric!r} is unknown: it is cosine or dot.")
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=_DISTANCES[metric]),
        hnsw_config=edge.HnswIndexConfig(
            m=16, ef_construct=100, full_scan_threshold=10_000, max_indexing_threads=num_indexing_threads
        ),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=INDEXING_THRESHOLD_KB),
        wal_enabled=True,
    )


class Shard:
    """The points of one collection.

    An update is acknowledged when it is applied and its log is on the disk; the segments follow with `flush`.
    Edge holds the interpreter's lock in every call, so calls take turns anyway: `_in_use` costs no
    concurrency and keeps a shard from being exchanged under a reader. `_writing` is held longer, while a copy
    must see no writes.
    """

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder = folder
        self.facts = facts
        #: Counts updates; equal numbers mean that nothing was written in between.
        self.num_writes = 0
        self.last_write_s = time.monotonic()
        self._num_unflushed = 0
        self._num_dead = facts.num_dead
        self._writing = threading.Lock()
        self._in_use = threading.Lock()
        require_room(folder, OPEN_BYTES)
        self._remove_others()
        with edge_errors(folder):
            self._edge = edge.EdgeShard.load(str(self.path))

    @classmethod
    def create(cls, folder: Path, collection: Collection) -> "Shard":
        """Make an empty shard; what a killed attempt left goes. The facts, written last, make it exist."""
        require_room(folder.parent, RESERVE_BYTES)
        shutil.rmtree(folder, ignore_errors=True)
        facts = Facts(collection, "shard-1")
        path = folder / facts.shard
        path.mkdir(parents=True)
        with edge_errors(folder):
            _fill_new(edge.EdgeShard.create(str(path), shard_config(collection.dim, collection.metric)))
        sync_tree(folder)
        write_facts(folder, facts)
        sync_path(folder.parent)
        return cls(folder, facts)

    @property
    def path(self) -> Path:
        return self.folder / self.facts.shard

    @property
    def quiet_s(self) -> float:
        """Seconds since the last write."""
        return time.monotonic() - self.last_write_s

    @property
    def has_unflushed(self) -> bool:
        return self._num_unflushed > 0

    def use(self, call: Callable[[edge.EdgeShard], T]) -> T:
        """Give the shard to one call."""
        with self._in_use, edge_errors(self.folder):
            return call(self._edge)

    def update(
        self,
        make: Callable[[], edge.UpdateOperation],
        num_points: int,
        size_bytes: int = 0,
        deadline: float | None = None,
    ) -> None:
        """Apply the operation; it survives the end of this process and of the machine when this returns.

        make: builds the operation, most of the work. It needs the interpreter from end to end, so writers
        take turns at it, and one operation is in memory at a time.
        """
        with self._writing:
            require_room(self.folder, RESERVE_BYTES + DISK_FACTOR * size_bytes)
            operation = make()
            log = self.path / "wal"
            # counted before it is tried: a failed update may have changed something too
            self.num_writes += 1
            self._num_unflushed += num_points
            self.last_write_s = time.monotonic()
            self.use(partial(_apply, operation=operation, deadline=deadline))
        # outside of the lock, and without the interpreter's: the next writer computes while this one waits
        # for the disk
        _sync_log(log)
        if self._num_unflushed >= MAX_UNFLUSHED:
            self.flush()

    def note_dead(self, num_points: int) -> None:
        """Points that were deleted take room until the next optimisation."""
        self._num_dead += num_points

    def flush(self) -> None:
        """Write the segments, so that opening needs no replay."""
        with self._writing:
            self._flush()

    def close(self) -> None:
        with self._writing, self._in_use, edge_errors(self.folder):
            self._edge.flush()
            self._edge.close()
            self._save_dead()

    def needs_optimizing(self, threshold: int) -> bool:
        """True when that many points are searched one by one, or are deleted and still there."""
        info = self.use(lambda shard: shard.info())
        return max(info.points_count - info.indexed_vectors_count, self._num_dead) >= threshold

    def copy_to(self, target: Path) -> int:
        """Copy the flushed shard while it can be read but not written. Returns `num_writes` of then."""
        with self._writing:
            self._flush()
            size_bytes = sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())
            require_room(self.folder, RESERVE_BYTES + 2 * size_bytes)
            with disk_errors(self.folder):
                shutil.copytree(self.path, target)
            return self.num_writes

    def exchange(self, path: Path, num_writes: int) -> bool:
        """Go on with the optimised copy at this path. False: something was written since `num_writes`."""
        with self._writing:
            if self.num_writes != num_writes:
                return False
            with edge_errors(self.folder):
                other = edge.EdgeShard.load(str(path))
            if _count(other) != self.use(_count):
                other.close()
                raise StoreError(f"The optimised copy of {self.path} has not all of its points.")
            self._go_on_with(other, path)
            return True

    def _go_on_with(self, other: edge.EdgeShard, path: Path) -> None:
        facts = replace(self.facts, shard=path.name, num_dead=0)
        # from here on the copy is the shard, also after a crash; the next opening removes the other one
        with disk_errors(self.folder):
            write_facts(self.folder, facts)
        with self._in_use:
            self._edge, old, old_path = other, self._edge, self.path
            self.facts, self._num_dead = facts, 0
        old.close()
        shutil.rmtree(old_path, ignore_errors=True)

    def _flush(self) -> None:
        with disk_errors(self.folder):
            # most of the waiting happens here, where readers go on; Edge's own flush then finds little to do
            sync_tree(self.path)
        self.use(lambda shard: shard.flush())
        self._num_unflushed = 0
        self._save_dead()

    def _save_dead(self) -> None:
        if self._num_dead != self.facts.num_dead:
            self.facts = replace(self.facts, num_dead=self._num_dead)
            with disk_errors(self.folder):
                write_facts(self.folder, self.facts)

    def _remove_others(self) -> None:
        """Remove copies that an interrupted optimisation left."""
        for path in self.folder.glob("shard-*"):
            if path.name != self.facts.shard:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def edge_errors(folder: Path) -> Iterator[None]:
    """Translate what Edge raises: plain exceptions with a text, and panics that are no Exception at all."""
    try:
        yield
    except EmbedctlError:
        raise
    except BaseException as exc:
        if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
            raise
        if "No space left" in str(exc):
            raise DiskFull(
                f"The disk that holds {folder} is full: free some and run the command again."
            ) from exc
        raise StoreError(f"The vector store in {folder} refused: {exc}") from exc


def _apply(shard: edge.EdgeShard, operation: edge.UpdateOperation, deadline: float | None) -> None:
    # looked at while nobody else has the shard: a sweep that begins after the deadline meets all that was
    # written
    if deadline is not None and time.monotonic() > deadline:
        raise StoreUnavailable("The vector store got to a write after its time was up; it was not written.")
    shard.update(operation)


def _count(shard: edge.EdgeShard) -> int:
    return shard.count(edge.CountRequest(exact=True))


def _fill_new(shard: edge.EdgeShard) -> None:
    for field, schema in PAYLOAD_INDEXES.items():
        shard.update(edge.UpdateOperation.create_field_index(field, schema))
    shard.flush()
    shard.close()


def _sync_log(log: Path) -> None:
    with disk_errors(log):
        for path in glob.glob("open-*", root_dir=log):
            sync_path(log / path)
        sync_path(log)
