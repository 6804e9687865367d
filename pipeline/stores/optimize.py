"""Build the search graph of a large shard on a copy, in a process of its own, and exchange it when nothing
was written meanwhile.

Edge's `optimize` holds the interpreter's lock from beginning to end: in the store process it would stop every
search for minutes. The module is also the program that runs in the child: `python -m
embedctl.pipeline.stores.optimize DIR DIM METRIC THREADS`.
"""

import logging
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import qdrant_edge as edge

from embedctl.pipeline.errors import EmbedctlError
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.stores.facts import sync_tree
from embedctl.pipeline.stores.shard import Shard, shard_config

logger = logging.getLogger(__name__)

MODULE = "embedctl.pipeline.stores.optimize"
#: Points that may be searched one by one: a few milliseconds of 384 dimensions.
THRESHOLD_POINTS = 20_000
#: Seconds without a write before a copy is made.
QUIET_S = 10.0
#: Exit status of the child when there was nothing to do.
UNCHANGED = 4
#: Added to the child's niceness: queries and indexing come first.
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Attempt:
    """shard at `num_writes` was copied to `path`, where `child` works on it."""

    shard: Shard
    num_writes: int
    path: Path
    child: subprocess.Popen[bytes]


class Optimizer:
    """One attempt at a time, driven by `tick` from the store process's maintenance."""

    def __init__(self, store: EdgeStore, threshold: int = THRESHOLD_POINTS, quiet_s: float = QUIET_S) -> None:
        self._store = store
        self._threshold = threshold
        self._quiet_s = quiet_s
        self._attempt: Attempt | None = None
        #: `num_writes` at which a shard was looked at: not again before something is written.
        self._seen: dict[Path, int] = {}

    @property
    def is_busy(self) -> bool:
        return self._attempt is not None

    def tick(self) -> None:
        """Begin, watch or end an attempt. Errors are logged: the shard is as good as before."""
        try:
            if self._attempt is None:
                self._begin()
            else:
                self._watch(self._attempt)
        except (EmbedctlError, OSError) as exc:
            logger.warning("Did not optimise: %s", exc, extra={"action": "optimize_failed"})
            self._end(remove=True)

    def close(self) -> None:
        """End the child; a copy that it leaves is removed."""
        self._end(remove=True)

    def _begin(self) -> None:
        for shard in self._store.shards():
            if self._is_due(shard):
                self._attempt = self._start(shard)
                return

    def _is_due(self, shard: Shard) -> bool:
        if shard.quiet_s < self._quiet_s or self._seen.get(shard.folder) == shard.num_writes:
            return False
        self._seen[shard.folder] = shard.num_writes
        return shard.needs_optimizing(self._threshold)

    def _start(self, shard: Shard) -> Attempt:
        path = shard.path.with_name(f"shard-{uuid.uuid4().hex[:12]}")
        shutil.rmtree(path, ignore_errors=True)
        try:
            num_writes = shard.copy_to(path)
            child = _spawn(path, shard)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        logger.info("Optimising a copy of %s", shard.path, extra={"action": "optimize_started"})
        return Attempt(shard, num_writes, path, child)

    def _watch(self, attempt: Attempt) -> None:
        if attempt.shard.num_writes != attempt.num_writes:
            logger.info("Optimising %s is put off: it is written to", attempt.shard.path)
            self._end(remove=True)
        elif attempt.child.poll() is not None:
            self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        status = attempt.child.returncode
        if status == 0 and attempt.shard.exchange(attempt.path, attempt.num_writes):
            logger.info("Optimised %s", attempt.shard.folder, extra={"action": "optimized"})
            self._end(remove=False)
            return
        if status not in (0, UNCHANGED):
            logger.warning("Optimising %s ended with status %s", attempt.path, status)
        self._end(remove=True)

    def _end(self, remove: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.child.kill()
        attempt.child.wait()
        if remove:
            shutil.rmtree(attempt.path, ignore_errors=True)


def _spawn(path: Path, shard: Shard) -> subprocess.Popen[bytes]:
    collection = shard.facts.collection
    threads = max(1, (os.cpu_count() or 1) // 2)
    arguments = [str(path), str(collection.dim), collection.metric, str(threads)]
    return subprocess.Popen([sys.executable, "-P", "-m", MODULE, *arguments], stdin=subprocess.DEVNULL)


def main(path: str, dim: str, metric: str, num_threads: str) -> int:
    """Optimise the shard at `path`, which nobody else has open. Returns the exit status."""
    os.nice(NICENESS)
    shard = edge.EdgeShard.load(path, shard_config(int(dim), metric, int(num_threads)))
    changed = shard.optimize()
    shard.flush()
    shard.close()
    sync_tree(Path(path))
    return 0 if changed else UNCHANGED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
