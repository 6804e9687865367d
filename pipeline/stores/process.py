"""The store process: owns the EdgeStore of one embedctl folder and serves it to its user's commands.

    python -m embedctl.pipeline.stores.process FOLDER [--idle-s 60]

Its peers are whoever may open the socket, which only its user can. It ends when nobody has been connected for
a while, on SIGTERM after the requests under way, and when its folder was removed.
"""

import argparse
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from embedctl.pipeline.errors import EmbedctlError, StoreUnavailable
from embedctl.pipeline.stores.address import Address
from embedctl.pipeline.stores.edge import LOCK_FILE, EdgeStore
from embedctl.pipeline.stores.optimize import QUIET_S, THRESHOLD_POINTS, Optimizer
from embedctl.pipeline.stores.peers import Peers
from embedctl.pipeline.stores.starter import BUSY

logger = logging.getLogger(__name__)

#: Seconds that a starting process waits for one that is ending.
TAKEOVER_S = 10.0
#: Seconds that requests under way get at the end.
FINISH_S = 30.0
#: Seconds between two rounds of maintenance, and without a write before what is only in the log is flushed.
MAINTENANCE_S = 0.5
FLUSH_QUIET_S = 2.0
#: Bytes from which the log file is moved aside; one older file is kept.
MAX_LOG_BYTES = 1 << 20
_BACKLOG = 128


class StoreProcess:
    """Accepts connections until it is told to stop, and looks after the store between requests."""

    def __init__(self, address: Address, store: EdgeStore, idle_s: float, optimizer: Optimizer) -> None:
        self._address = address
        self._store = store
        self._idle_s = idle_s
        self._optimizer = optimizer
        self._peers = Peers(store)
        self._stopping = threading.Event()
        self._last_busy_s = time.monotonic()

    def stop(self) -> None:
        self._stopping.set()

    def serve(self) -> None:
        """Returns when it was stopped; then every request received has been answered and the store is
        closed."""
        listener = _listen(self._address.socket)
        maintenance = threading.Thread(target=self._maintain, name="maintenance")
        maintenance.start()
        logger.info("Serving %s", self._address.folder, extra={"action": "store_started"})
        try:
            self._accept(listener)
        finally:
            self._stopping.set()
            # nobody new; who comes now finds no socket, starts a process, and that one waits for this one's
            # lock
            self._address.socket.unlink(missing_ok=True)
            listener.close()
            self._peers.finish(FINISH_S)
            maintenance.join()
            self._optimizer.close()
            self._store.close()
        logger.info("Stopped serving %s", self._address.folder, extra={"action": "store_stopped"})

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(MAINTENANCE_S)
        while not self._stopping.is_set():
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError as exc:
                # too many open files, or out of memory: those who are connected go on
                logger.warning("Cannot accept a connection: %s", exc, extra={"action": "accept_failed"})
                self._stopping.wait(MAINTENANCE_S)
                continue
            # a short visit may come and go between two rounds of maintenance
            self._last_busy_s = time.monotonic()
            self._peers.add(peer)

    def _maintain(self) -> None:
        while not self._stopping.wait(MAINTENANCE_S):
            try:
                self._flush_quiet()
                self._optimizer.tick()
                bound_log(self._address.log)
            except (EmbedctlError, OSError) as exc:
                logger.warning("Maintenance: %s", exc, extra={"action": "maintenance_failed"})
            if self._is_idle() or not self._is_reachable():
                self._stopping.set()

    def _flush_quiet(self) -> None:
        for shard in self._store.shards():
            if shard.has_unflushed and shard.quiet_s >= FLUSH_QUIET_S:
                shard.flush()

    def _is_idle(self) -> bool:
        if self._peers or self._optimizer.is_busy:
            self._last_busy_s = time.monotonic()
        return time.monotonic() - self._last_busy_s >= self._idle_s

    def _is_reachable(self) -> bool:
        """False when somebody removed the folder, or the socket: a new process must take over."""
        return self._address.socket.exists() and (self._address.data / LOCK_FILE).exists()


def bound_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Move a long log aside. Emptied, not renamed: it is this process's standard error, opened to append."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > max_bytes:
            shutil.copyfile(path, path.with_name(path.name + ".1"))
            os.truncate(path, 0)


def can_connect(path: Path) -> bool:
    """True when a process accepts connections at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        return probe.connect_ex(os.fspath(path)) == 0


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(path))
    listener.listen(_BACKLOG)
    return listener


def _take_over(address: Address) -> EdgeStore | None:
    """Open the store, waiting for a process that is ending. None when another one has it and keeps it."""
    deadline = time.monotonic() + TAKEOVER_S
    while True:
        try:
            return EdgeStore(address.data)
        except StoreUnavailable:
            if can_connect(address.socket) or time.monotonic() > deadline:
                return None
        time.sleep(0.05)


def _run(options: argparse.Namespace) -> int:
    address = Address.of(options.folder)
    address.prepare()
    store = _take_over(address)
    if store is None:
        return BUSY
    optimizer = Optimizer(store, options.optimize_points, options.optimize_quiet_s)
    process = StoreProcess(address, store, options.idle_s, optimizer)
    signal.signal(signal.SIGTERM, lambda number, frame: process.stop())
    process.serve()
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status; what went wrong is the last line of the log."""
    parser = argparse.ArgumentParser(
        prog="embedctl-store", description="Serve the vector store of an embedctl folder."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--optimize-points", type=int, default=THRESHOLD_POINTS)
    parser.add_argument("--optimize-quiet-s", type=float, default=QUIET_S)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(levelname)s %(message)s")
    # texts and vectors are for their owner only, the socket too
    os.umask(0o077)
    try:
        return _run(options)
    except (EmbedctlError, OSError) as exc:
        logger.error("%s", exc)
        return 1


if __name__ == "__main__":
    sys.exit(main())
