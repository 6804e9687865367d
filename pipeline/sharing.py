"""Within a process, equal inputs share one computation, also while it is still running in another thread."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


class SharedVectors:
    """Computations under way, and the newest finished ones within a bound of bytes. Thread-safe.

    Every `claim` must be followed by `finish` for all hashes it returned as mine, also after an error: others
    wait for them.
    """

    def __init__(self, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._finished: OrderedDict[str, Vector] = OrderedDict()
        self._running: dict[str, Future[Vector | None]] = {}

    def get(self, hashes: Iterable[str]) -> dict[str, Vector]:
        """Finished ones among these."""
        with self._lock:
            found = {key: self._finished[key] for key in set(hashes) if key in self._finished}
            for key in found:
                self._finished.move_to_end(key)
        return found

    def claim(self, hashes: Iterable[str]) -> tuple[list[str], dict[str, "Future[Vector | None]"]]:
        """(mine, theirs): what the caller must compute now, and what another thread is computing.

        A future gives None when that thread failed; the caller then computes it by itself.
        """
        mine: list[str] = []
        theirs: dict[str, Future[Vector | None]] = {}
        with self._lock:
            for key in dict.fromkeys(hashes):
                if key in self._running:
                    theirs[key] = self._running[key]
                else:
                    self._running[key] = Future()
                    mine.append(key)
        return mine, theirs

    def finish(self, mine: Iterable[str], vectors: Mapping[str, Vector]) -> None:
        """Hand the results to whoever waits; a hash without a vector has failed."""
        with self._lock:
            futures = [(self._running.pop(key), vectors.get(key)) for key in mine]
            for key, vector in vectors.items():
                self._keep(key, vector)
        for future, result in futures:
            future.set_result(result)

    def _keep(self, key: str, vector: Vector) -> None:
        if key not in self._finished:
            self._size_bytes += vector.nbytes
        self._finished[key] = vector
        self._finished.move_to_end(key)
        while self._size_bytes > self._max_bytes:
            self._size_bytes -= self._finished.popitem(last=False)[1].nbytes
