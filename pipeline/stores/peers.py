"""The connections of the store process: one thread each, and who they belong to."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import embedctl
from embedctl.pipeline.errors import EmbedctlError, StoreError
from embedctl.pipeline.stores.base import VectorStore
from embedctl.pipeline.stores.frames import (
    MAX_HELLO_BYTES,
    PROTOCOL,
    BadFrame,
    Frame,
    receive_frame,
    send_frame,
)
from embedctl.pipeline.stores.service import answer, error_reply, result_reply

logger = logging.getLogger(__name__)

#: Seconds in which a new connection must say hello.
HELLO_S = 10.0


class Peers:
    """Connections that are open or have requests under way.

    An owner is counted before its hello is answered, and no request is read before that; it is uncounted
    after its last request has been executed or discarded. So an owner whose process is gone and who is not
    counted can do nothing any more: what it may have left in a connection not yet accepted is a hello at
    most.
    """

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._threads: dict[socket.socket, threading.Thread] = {}
        self._owners: Counter[str] = Counter()

    def __len__(self) -> int:
        with self._lock:
            return len(self._threads)

    def add(self, peer: socket.socket) -> None:
        """Serve this connection until its other end closes it."""
        thread = threading.Thread(target=self._serve, args=(peer,), name="peer", daemon=True)
        with self._lock:
            self._threads[peer] = thread
        thread.start()

    def has_ended(self, owner: str) -> bool:
        """True when the owner has no connection here, and so no request that waits or runs."""
        with self._lock:
            return not self._owners[owner]

    def finish(self, timeout_s: float) -> None:
        """Let each connection answer what it has received, then close it."""
        with self._lock:
            threads = dict(self._threads)
        for peer in threads:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RD)
        deadline = time.monotonic() + timeout_s
        for thread in threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self, peer: socket.socket) -> None:
        try:
            with self._welcome(peer):
                while (request := receive_frame(peer)) is not None:
                    self._reply(peer, request)
        except (OSError, EOFError) as exc:
            logger.debug("A connection ended: %s", exc)
        except BadFrame as exc:
            logger.warning("Closed a connection: %s", exc, extra={"action": "bad_frame"})
        except EmbedctlError as exc:
            logger.warning("Refused a connection: %s", exc, extra={"action": "peer_refused"})
            with contextlib.suppress(OSError):
                send_frame(peer, error_reply(exc))
        finally:
            with self._lock:
                del self._threads[peer]
            peer.close()

    @contextlib.contextmanager
    def _welcome(self, peer: socket.socket) -> Iterator[None]:
        peer.settimeout(HELLO_S)
        hello = receive_frame(peer, MAX_HELLO_BYTES)
        owner = _owner(hello)
        with self._lock:
            self._owners[owner] += 1
        try:
            send_frame(peer, result_reply({"pid": os.getpid(), "version": embedctl.__version__}))
            peer.settimeout(None)
            yield
        finally:
            with self._lock:
                self._owners[owner] -= 1
                if not self._owners[owner]:
                    del self._owners[owner]

    def _reply(self, peer: socket.socket, request: Frame) -> None:
        if request.header.get("op") == "has_ended":
            send_frame(peer, result_reply(self.has_ended(str(request.header.get("owner")))))
            return
        header, tail = answer(self._store, request)
        try:
            send_frame(peer, header, tail)
        except BadFrame:
            send_frame(
                peer, error_reply(StoreError("The answer is too large to be sent: ask for fewer points."))
            )


def _owner(hello: Frame | None) -> str:
    """The owner in a hello. Raises StoreError for a client of another release, EOFError for one that left."""
    if hello is None:
        raise EOFError("The client left without a word.")
    header = hello.header
    if header.get("hello") != PROTOCOL:
        raise StoreError(
            f"The store process of embedctl {embedctl.__version__} speaks protocol {PROTOCOL}, "
            f"this command of embedctl {header.get('version')} speaks {header.get('hello')}: end the other "
            "commands that use this folder, wait a minute for the store process to end, and run it again."
        )
    return str(header.get("owner"))
