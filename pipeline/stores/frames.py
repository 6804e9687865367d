"""What goes over the store's socket: a JSON header and, behind it, raw vectors. No pickle: a frame can only
be data.

A frame is a prefix (magic, bytes of the header, bytes of the tail), the header as JSON and a tail of
little-endian float32. The first frame of a connection is the hello, which the server answers before any
request is sent.
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from embedctl.pipeline.stores.base import Vectors

#: Changes when a client and a store process of different releases would misunderstand each other.
PROTOCOL = 1
MAGIC = b"ECS1"
#: Bytes of header and tail that a peer accepts.
MAX_FRAME_BYTES = 64 << 20
#: Bytes of a hello: nobody has said who they are yet.
MAX_HELLO_BYTES = 4 << 10

_PREFIX = struct.Struct("<4sII")


class BadFrame(Exception):
    """The peer sent something that is not a frame, or one that is too large."""


@dataclass(frozen=True, slots=True)
class Frame:
    """header: a JSON object. tail: bytes of float32 vectors, row by row."""

    header: Mapping[str, Any]
    tail: bytes | bytearray = b""

    def vectors(self, dim: int) -> Vectors:
        """The tail as (n, dim) float32. Raises BadFrame when its size is no multiple of a vector."""
        if dim <= 0 or len(self.tail) % (4 * dim):
            raise BadFrame(f"{len(self.tail)} bytes are no whole number of vectors of {dim} dimensions.")
        return np.frombuffer(self.tail, "<f4").astype(np.float32, copy=False).reshape(-1, dim)


def vector_bytes(vectors: Vectors) -> bytes:
    """The tail that carries these vectors."""
    return np.ascontiguousarray(vectors, dtype="<f4").tobytes()


def send_frame(peer: socket.socket, header: bytes, tail: bytes = b"") -> None:
    """Send a frame whose header is encoded already. Raises BadFrame, with nothing sent, when it is too
    large."""
    if len(header) + len(tail) > MAX_FRAME_BYTES:
        raise BadFrame(f"{len(header) + len(tail):,} bytes do not fit into a frame.")
    _send_all(peer, [_PREFIX.pack(MAGIC, len(header), len(tail)), header, tail])


def receive_frame(peer: socket.socket, max_bytes: int = MAX_FRAME_BYTES) -> Frame | None:
    """The next frame, None when the peer has closed before one began. Raises BadFrame, OSError, and EOFError
    in mid-frame."""
    prefix = _receive(peer, _PREFIX.size, may_end=True)
    if prefix is None:
        return None
    magic, header_bytes, tail_bytes = _PREFIX.unpack(prefix)
    if magic != MAGIC or header_bytes + tail_bytes > max_bytes:
        raise BadFrame(f"No frame begins with {bytes(prefix)!r}.")
    header = _parse(_receive(peer, header_bytes))
    return Frame(header, _receive(peer, tail_bytes) or b"")


def _parse(raw: bytearray | None) -> Mapping[str, Any]:
    try:
        header = orjson.loads(raw or b"")
    except ValueError as exc:
        raise BadFrame(f"The header of a frame is not JSON: {exc}.") from exc
    if not isinstance(header, dict):
        raise BadFrame("The header of a frame is not an object.")
    return header


def _receive(peer: socket.socket, num_bytes: int, may_end: bool = False) -> bytearray | None:
    buffer = bytearray(num_bytes)
    view, received = memoryview(buffer), 0
    while received < num_bytes:
        count = peer.recv_into(view[received:])
        if not count:
            if may_end and not received:
                return None
            raise EOFError("The peer closed the connection within a frame.")
        received += count
    return buffer


def _send_all(peer: socket.socket, parts: Sequence[bytes]) -> None:
    views = [memoryview(part) for part in parts if part]
    while views:
        sent = peer.sendmsg(views)
        while views and sent >= len(views[0]):
            sent -= len(views.pop(0))
        if sent:
            views[0] = views[0][sent:]
