"""Two lanes, first come, first served, queries before bulk; who comes next is decided at step boundaries."""

from __future__ import annotations

import threading
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from embedctl.engine.packing import StepSize

if TYPE_CHECKING:
    from embedctl.engine.request import Request

#: Seconds between two looks at an empty queue; a new request wakes the engine at once.
_IDLE_WAIT_S = 1.0


class Lane(Enum):
    """Which requests go first."""

    #: Someone waits for the answer.
    QUERY = "query"
    #: Throughput counts.
    BULK = "bulk"


#: One row of a step: a request and the position of one of its sequences.
Row = tuple["Request", int]


class LaneQueue:
    """Requests that wait for the device. Any thread puts, one engine thread takes."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[Request]] = {Lane.QUERY: deque(), Lane.BULK: deque()}
        self._changed = threading.Condition()
        self._end: Exception | None = None

    @property
    def end(self) -> Exception | None:
        """Why no request is taken any more; None while the queue is open."""
        return self._end

    def put(self, request: Request, lane: Lane) -> None:
        """Raises what the queue was closed with."""
        with self._changed:
            if self._end is not None:
                raise self._end
            self._lanes[lane].append(request)
            self._changed.notify()

    def next_rows(self, max_tokens: int, *, is_padded: bool) -> list[Row] | None:
        """The rows of the next step, waiting for some; None when the queue is closed."""
        with self._changed:
            while self._end is None:
                if rows := self._take(max_tokens, is_padded=is_padded):
                    return rows
                self._changed.wait(timeout=_IDLE_WAIT_S)
            return None

    def close(self, error: Exception) -> list[Request]:
        """Take no more requests; gives those that were not scheduled completely. The first error stays."""
        with self._changed:
            self._end = self._end or error
            left = [request for lane in self._lanes.values() for request in lane]
            for lane in self._lanes.values():
                lane.clear()
            self._changed.notify_all()
            return left

    def _take(self, max_tokens: int, *, is_padded: bool) -> list[Row]:
        for lane in (Lane.QUERY, Lane.BULK):
            if rows := _fill(self._lanes[lane], max_tokens, is_padded=is_padded):
                return rows
        return []


def _fill(waiting: deque[Request], max_tokens: int, *, is_padded: bool) -> list[Row]:
    """Rows of one lane, in the order in which their requests came, until the next one does not fit."""
    rows: list[Row] = []
    size = StepSize()
    while waiting:
        request = waiting[0]
        if request.is_over or request.is_scheduled:
            waiting.popleft()
            continue
        taken, size = request.take(size, max_tokens, is_padded=is_padded)
        if not len(taken):
            break
        rows += [(request, int(index)) for index in taken]
    return rows
