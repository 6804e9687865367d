"""The lines of a file that may be gzipped and in another encoding, as UTF-8, in constant memory."""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

from embedctl.pipeline.readers.content import find_mark
from embedctl.pipeline.readers.decoding import hides_in_ascii

_GZIP_MAGIC = b"\x1f\x8b"
_BUFFER_BYTES = 1024 * 1024


class LineStream(Protocol):
    def readline(self, size: int, /) -> bytes:
        """At most `size` bytes of the next line with its end; empty at the end of the stream."""
        ...


def open_lines(fd: int, encoding: str | None, stack: ExitStack) -> LineStream:
    """Lines from the start of an open file, without its byte order mark; the stack closes what this opens.

    encoding: of the file where it is not a superset of ASCII; lines in others are returned as they are.
    """
    stream = io.BufferedReader(stack.enter_context(os.fdopen(os.dup(fd), "rb", buffering=0)), _BUFFER_BYTES)
    if stream.peek(2).startswith(_GZIP_MAGIC):
        packed = stack.enter_context(gzip.GzipFile(fileobj=stream))
        # GzipFile's own readline is several times slower than this one
        stream = io.BufferedReader(packed, _BUFFER_BYTES)  # type: ignore[arg-type]
    marked = find_mark(stream.peek(4)[:4])
    if marked:
        stream.read(len(marked[0]))
        encoding = marked[1]
    if encoding is None or encoding == "utf-8" or not hides_in_ascii(encoding):
        return stream
    return _Recoded(io.TextIOWrapper(stream, encoding, newline="\n"))


def bounded_lines(stream: LineStream, max_bytes: int) -> Iterator[bytes]:
    """Every line; of one that is longer than max_bytes only the first max_bytes + 1 bytes or some more."""
    while line := stream.readline(max_bytes + 1):
        yield line
        part = line
        while not part.endswith(b"\n") and len(line) > max_bytes and part:
            part = stream.readline(_BUFFER_BYTES)


class _Recoded:
    """Lines of another encoding as UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def readline(self, size: int, /) -> bytes:
        return self._text.readline(size).encode()
