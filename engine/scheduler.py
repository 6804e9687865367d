"""The engine thread: fills steps from the lanes, computes them, answers each request."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from embedctl.engine.counters import EngineCounters
from embedctl.engine.errors import EngineDied, OutOfMemory
from embedctl.engine.lanes import Lane, LaneQueue, Row
from embedctl.engine.lazy import LazyTensor, Vectors
from embedctl.engine.packing import PackedBatch, pack
from embedctl.engine.request import Request

logger = logging.getLogger(__name__)

#: Seconds that `close` waits for the step in progress.
CLOSE_WAIT_S = 60.0


class Encoder(Protocol):
    """What computes a step. Raises OutOfMemory when the device has too little memory for it."""

    @property
    def embedding_dim(self) -> int: ...

    @property
    def precision(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def is_padded(self) -> bool:
        """True when the device computes rows x longest instead of the sum of the lengths."""
        ...

    def encode(self, packed: PackedBatch) -> LazyTensor: ...

    def encode_exactly(self, packed: PackedBatch) -> LazyTensor:
        """The same in fp32, for a vector that was not finite."""
        ...


@dataclass(frozen=True, slots=True)
class StepLimit:
    """Tokens of one step. Halved when the device runs out of memory, down to the model's longest input."""

    max_tokens: int
    min_tokens: int

    def halved(self) -> "StepLimit":
        return StepLimit(max(self.max_tokens // 2, self.min_tokens), self.min_tokens)


class Scheduler:
    """Owns the engine thread and everything that waits for it."""

    def __init__(self, encoder: Encoder, limit: StepLimit) -> None:
        self._encoder = encoder
        self._limit = limit
        self._queue = LaneQueue()
        self._open: set[Request] = set()
        self._counters = EngineCounters()
        self._thread = threading.Thread(target=self._run, name="embedctl-engine", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> EngineCounters:
        return self._counters

    @property
    def is_alive(self) -> bool:
        return self._queue.end is None and self._thread.is_alive()

    def submit(self, request: Request, lane: Lane) -> None:
        """Raises EngineDied when the engine thread has ended."""
        self._queue.put(request, lane)

    def close(self) -> None:
        """Fail what waits, let the step in progress end, then the thread; EngineDied when it does not."""
        self._fail_all(EngineDied("The engine was closed."))
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=CLOSE_WAIT_S)
            if self._thread.is_alive():
                raise EngineDied(f"The engine's step did not end within {CLOSE_WAIT_S:.0f} s.")

    def _run(self) -> None:
        try:
            while (
                rows := self._queue.next_rows(self._limit.max_tokens, is_padded=self._encoder.is_padded)
            ) is not None:
                self._open = {request for request, _ in rows}
                self._execute(_longest_first(rows))
        except BaseException as error:
            logger.exception("The engine thread has ended", extra={"action": "engine_died"})
            self._fail_all(EngineDied(f"The engine thread has ended: {error!r}. Start the process again."))

    def _fail_all(self, error: EngineDied) -> None:
        for request in (*self._queue.close(error), *self._open):
            request.fail(error)

    def _execute(self, rows: list[Row]) -> None:
        """Compute the rows and answer their requests; an error reaches only the request that caused it."""
        try:
            vectors = self._compute(rows)
        except OutOfMemory as error:
            self._halve(rows, error)
        except Exception as error:
            self._isolate(rows, error)
        else:
            self._deliver(rows, vectors)

    def _halve(self, rows: list[Row], error: OutOfMemory) -> None:
        if len(rows) == 1:
            rows[0][0].fail(error)
            return
        self._limit = self._limit.halved()
        logger.warning(
            "Out of memory in a step of %d sequences; steps have at most %d tokens from now on",
            len(rows),
            self._limit.max_tokens,
            extra={"action": "step_halved", "num_sequences": len(rows)},
        )
        middle = len(rows) // 2
        self._execute(rows[:middle])
        self._execute(rows[middle:])

    def _isolate(self, rows: list[Row], error: Exception) -> None:
        by_request = _by_request(rows)
        if len(by_request) == 1:
            rows[0][0].fail(error)
            return
        for request, indices in by_request.items():
            self._execute([(request, index) for index in indices])

    def _compute(self, rows: Sequence[Row]) -> Vectors:
        """(len(rows), dim) float32, in the order of the rows."""
        packed = _pack_rows(rows)
        started = time.perf_counter()
        vectors = self._encoder.encode(packed).result()
        seconds = time.perf_counter() - started
        num_padded = (
            packed.num_sequences * packed.max_seqlen if self._encoder.is_padded else packed.num_tokens
        )
        self._counters = self._counters.plus_step(len(rows), packed.num_tokens, num_padded, seconds)
        return vectors

    def _deliver(self, rows: list[Row], vectors: Vectors) -> None:
        invalid = self._repair(rows, vectors)
        places: dict[Request, list[int]] = defaultdict(list)
        for place, (request, _) in enumerate(rows):
            places[request].append(place)
        for request, of_request in places.items():
            indices = [rows[place][1] for place in of_request]
            bad = [rows[place][1] for place in of_request if place in invalid]
            try:
                request.deliver(indices, vectors[of_request], bad)
            except Exception as error:  # the caller's on_step
                request.fail(error)

    def _repair(self, rows: list[Row], vectors: Vectors) -> set[int]:
        """Compute unusable vectors again, alone and in fp32, in place. Gives the places still unusable."""
        return {
            int(place)
            for place in np.flatnonzero(~usable_rows(vectors))
            if not self._repaired(rows, vectors, int(place))
        }

    def _repaired(self, rows: list[Row], vectors: Vectors, place: int) -> bool:
        try:
            vectors[place] = self._encoder.encode_exactly(_pack_rows([rows[place]])).result()[0]
        except Exception as error:
            rows[place][0].fail(error)
        return bool(usable_rows(vectors[place : place + 1])[0])


def usable_rows(vectors: Vectors) -> npt.NDArray[np.bool_]:
    """(n,) bool: finite and not zero."""
    return np.asarray(np.isfinite(vectors).all(axis=1) & vectors.any(axis=1))


def _longest_first(rows: list[Row]) -> list[Row]:
    """Equal lengths lie side by side, so that attention runs over few groups."""
    return sorted(rows, key=lambda row: -len(row[0].sequences[row[1]]))


def _by_request(rows: Sequence[Row]) -> dict[Request, list[int]]:
    indices: dict[Request, list[int]] = defaultdict(list)
    for request, index in rows:
        indices[request].append(index)
    return indices


def _pack_rows(rows: Sequence[Row]) -> PackedBatch:
    return pack(
        [request.sequences[index] for request, index in rows],
        [request.prompt_tokens(index) for request, index in rows],
    )
