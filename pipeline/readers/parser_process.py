"""The process in which HTML and PDF files are parsed: what kills or stops it costs one document.

PDFium is not thread-safe and crashes on odd files; HTML parsers take minutes for a megabyte of nested tags.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import orjson

from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.problem import Problem

Kind = Literal["html", "pdf"]

REQUEST = struct.Struct("!4sQ")
ANSWER = struct.Struct("!Q")
READY = b"ready"
#: Documents after which a fresh process is started: leaks of the libraries stay small.
MAX_DOCUMENTS = 500
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Parsed:
    """text: of all pages, joined by blank lines. page_starts: character offsets of a PDF's pages."""

    text: str
    title: str = ""
    page_starts: list[int] = field(default_factory=list)


class ParserProcess:
    """Starts when it is first needed, serves one document after the other, is started again after it died."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._num_documents = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def parse(self, kind: Kind, content: bytes) -> Parsed:
        """Parse one document; HTML is UTF-8. Raises Problem when the parser refuses, dies or is too slow."""
        process = self._running()
        self._num_documents += 1
        timeout_s = self._options.parse_timeout_s
        try:
            with _killed_after(process, timeout_s) as timed_out:
                answer = _exchange(process, kind, content, self._max_answer_bytes)
        except (OSError, EOFError) as exc:
            status = self._end()
            if timed_out.is_set():
                raise Problem(f"Parsing it took longer than {timeout_s:g} s (parse_timeout_s).") from exc
            raise Problem(f"Its parser died ({_describe(status)}).") from exc
        return _parsed(answer)

    def close(self) -> None:
        if self._process is not None:
            self._end()

    @property
    def _max_answer_bytes(self) -> int:
        # a character takes at most six bytes in JSON
        return 6 * self._options.max_document_bytes + 65536

    def _running(self) -> "subprocess.Popen[bytes]":
        process = self._process
        if process is not None and (process.poll() is not None or self._num_documents >= MAX_DOCUMENTS):
            self._end()
            process = None
        if process is None:
            process = self._process = _start(self._options)
            self._num_documents = 0
        return process

    def _end(self) -> int:
        """Kill the process. Returns its exit status, negative for a signal."""
        process, self._process = self._process, None
        assert process is not None
        # a process that is about to exit by itself says why; the wait is short
        status: int | None = None
        _close_pipes(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout=0.2)
        if status is None:
            process.kill()
            status = process.wait()
        return status


def _start(options: ReaderOptions) -> "subprocess.Popen[bytes]":
    limits = [options.parse_memory_bytes, int(options.parse_timeout_s) + 2, options.max_document_bytes]
    process = subprocess.Popen(
        # -P: a file named like a library in the working directory is not imported
        [sys.executable, "-P", "-m", "embedctl.pipeline.readers.parser_main", *map(str, limits)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        # Ctrl-C is for the run, which decides when parsing ends
        start_new_session=True,
        # untrusted files are parsed there: no passwords and keys
        env={name: value for name, value in os.environ.items() if not name.startswith("EMBEDCTL_")},
    )
    try:
        with _killed_after(process, START_TIMEOUT_S):
            _read(process, len(READY))
    except (OSError, EOFError) as exc:
        process.kill()
        status = process.wait()
        _close_pipes(process)
        raise Problem(
            f"The parser process did not start ({_describe(status)}); parse_memory_bytes may be too low."
        ) from exc
    return process


@contextlib.contextmanager
def _killed_after(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[threading.Event]:
    """Kill the process when the block takes longer; yields the event that says so."""
    timed_out = threading.Event()

    def kill() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()


def _exchange(process: "subprocess.Popen[bytes]", kind: Kind, content: bytes, max_bytes: int) -> bytes:
    _write(process, REQUEST.pack(kind.encode(), len(content)))
    _write(process, content)
    (size,) = ANSWER.unpack(_read(process, ANSWER.size))
    if size > max_bytes:
        raise EOFError
    return _read(process, size)


def _write(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    view = memoryview(data)
    while view:
        view = view[process.stdin.write(view) :]


def _read(process: "subprocess.Popen[bytes]", size: int) -> bytes:
    assert process.stdout is not None
    parts = bytearray()
    while len(parts) < size:
        part = process.stdout.read(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _parsed(answer: bytes) -> Parsed:
    fields = orjson.loads(answer)
    if "problem" in fields:
        raise Problem(fields["problem"])
    return Parsed(fields["text"], fields["title"], fields["page_starts"])


def _close_pipes(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
