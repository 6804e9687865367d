"""Ctrl-C, SIGTERM and a closed terminal: once stops at the next step, twice stops now."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from embedctl.pipeline.commands.display import note

#: What a shell reports for a command that was interrupted.
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that is set by the first signal; the second ends the process at once. Only in the main
    thread."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()
        note("Stopping at the next step; once more stops now. Nothing is lost either way.")

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
