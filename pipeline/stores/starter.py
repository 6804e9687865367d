"""Starts the store process of a folder, when connecting finds none."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from embedctl.pipeline.errors import StoreUnavailable
from embedctl.pipeline.stores.address import Address
from embedctl.pipeline.stores.disk import disk_errors

logger = logging.getLogger(__name__)

T = TypeVar("T")

MODULE = "embedctl.pipeline.stores.process"
#: Exit status of a process that found another one serving the folder.
BUSY = 3
#: Seconds until a process must answer, from the first try on.
START_S = 60.0
_PAUSE_S = 0.02


class Starter:
    """Connects, and starts the process where there is none.

    Several starters at once are harmless: their processes decide by a lock, clients connect to the winner.
    """

    def __init__(self, address: Address, idle_s: float) -> None:
        self._address = address
        self._idle_s = idle_s
        self._lock = threading.Lock()

    def connect(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, once there is a process. Raises StoreUnavailable naming the log."""
        deadline = time.monotonic() + START_S
        try:
            return attempt()
        except (OSError, EOFError) as exc:
            logger.debug("No store process answers: %s", exc)
        # one thread of this client starts it, the others wait for that
        with self._lock:
            return self._start_and_connect(attempt, deadline)

    def _start_and_connect(self, attempt: Callable[[], T], deadline: float) -> T:
        process: subprocess.Popen[bytes] | None = None
        while time.monotonic() < deadline:
            try:
                return attempt()
            except (OSError, EOFError) as exc:
                logger.debug("The store process does not answer yet: %s", exc)
            status = process.poll() if process is not None else BUSY
            if status == BUSY or (
                status is not None and status < 0
            ):  # killed from outside: no fault of its own
                process = self._start()
            elif status is not None:
                raise StoreUnavailable(
                    f"The store process did not start: {self._last_words()} ({self._address.log})"
                )
            time.sleep(_PAUSE_S)
        raise StoreUnavailable(f"The store process does not answer; its log is {self._address.log}.")

    def _start(self) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-P", "-m", MODULE]
        command = [*program, str(self._address.folder), "--idle-s", str(self._idle_s)]
        with disk_errors(self._address.folder):
            self._address.prepare()
            with open(self._address.log, "ab") as log:
                # a session of its own: Ctrl-C ends the command, not the store that others use
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        # it outlives this command as a rule; where it does not, it must not stay behind as a zombie
        threading.Thread(target=process.wait, name="store-wait", daemon=True).start()
        return process

    def _last_words(self) -> str:
        """The last line of the log."""
        lines = self._address.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
