"""Within a process, equal inputs share one computation, also while it is still running in another thread."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
#: What finished vectors may take. Repeats within a run are near each other as a rule; the cache has the rest.
MAX_BYTES = 8 * 1024 * 1024
#: Memory of an entry beside its vector: the key, the array's header, the dictionary.
ENTRY_OVERHEAD_BYTES = 400
#: The results of one claim: hash -> vector; a hash that is not among them has failed.
Computation = Future[Mapping[str, Vector]]


class SharedVectors:
    """Computations under way, and the newest finished ones within a bound of bytes. Thread-safe.

    Every `claim` must be followed by `finish` for all hashes it returned as mine, also after an error: others
    wait for them.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._finished: OrderedDict[str, Vector] = OrderedDict()
        self._running: dict[str, Computation] = {}

    def get(self, hashes: Iterable[str]) -> dict[str, Vector]:
        """Finished ones among these."""
        with self._lock:
            found = {key: self._finished[key] for key in set(hashes) if key in self._finished}
            for key in found:
                self._finished.move_to_end(key)
        return found

    def claim(self, hashes: Iterable[str]) -> tuple[list[str], dict[str, Computation]]:
        """(mine, theirs): what the caller must compute now, and what another thread is computing or has just
        finished.

        A computation without a vector for the hash has failed; the caller then computes it by itself.
        """
        computation: Computation = Future()
        mine: list[str] = []
        theirs: dict[str, Computation] = {}
        with self._lock:
            for key in dict.fromkeys(hashes):
                if key in self._running:
                    theirs[key] = self._running[key]
                elif key in self._finished:  # since the caller looked
                    theirs[key] = _done({key: self._finished[key]})
                else:
                    self._running[key] = computation
                    mine.append(key)
        return mine, theirs

    def finish(self, mine: Sequence[str], vectors: Mapping[str, Vector]) -> None:
        """Hand the results to whoever waits."""
        if not mine:
            return
        with self._lock:
            [computation] = {self._running.pop(key) for key in mine}
            for key, vector in vectors.items():
                self._keep(key, vector)
        computation.set_result(vectors)

    def _keep(self, key: str, vector: Vector) -> None:
        if key not in self._finished:
            self._size_bytes += vector.nbytes + ENTRY_OVERHEAD_BYTES
        # a copy: a row would keep all vectors of its computation in memory
        self._finished[key] = vector.copy()
        self._finished.move_to_end(key)
        while self._size_bytes > self._max_bytes:
            _, oldest = self._finished.popitem(last=False)
            self._size_bytes -= oldest.nbytes + ENTRY_OVERHEAD_BYTES


def _done(vectors: Mapping[str, Vector]) -> Computation:
    computation: Computation = Future()
    computation.set_result(vectors)
    return computation
