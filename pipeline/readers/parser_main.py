"""The parser process: reads documents from standard input, answers with their text, under limits."""

import os
import resource
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import orjson

from embedctl.pipeline.readers.html import parse_html
from embedctl.pipeline.readers.parser_process import ANSWER, READY, REQUEST, Parsed
from embedctl.pipeline.readers.pdf import parse_pdf
from embedctl.pipeline.readers.problem import Problem
from embedctl.pipeline.readers.sanitize import sanitize_text

PARSERS: dict[bytes, Callable[[bytes, int], Parsed]] = {b"html": parse_html, b"pdf\0": parse_pdf}


def main(memory_bytes: int, cpu_s: int, max_chars: int) -> None:
    """Serve until standard input ends."""
    requests, answers = _take_pipes()
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, memory_bytes)
    answers.write(READY)
    while header := requests.read(REQUEST.size):
        kind, size = REQUEST.unpack(header)
        # ends also a process whose parent is gone
        _limit(resource.RLIMIT_CPU, _cpu_used_s() + cpu_s)
        answer = orjson.dumps(_answer(PARSERS[kind], requests.read(size), max_chars))
        answers.write(ANSWER.pack(len(answer)) + answer)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the parent; what libraries print goes nowhere."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, answers


def _answer(parse: Callable[[bytes, int], Parsed], content: bytes, max_chars: int) -> dict[str, Any]:
    try:
        parsed = parse(content, max_chars)
    except Problem as exc:
        return {"problem": str(exc)}
    except MemoryError:
        return {"problem": "Parsing it takes more memory than parse_memory_bytes allows."}
    except Exception as exc:
        # a library's error: whatever it is, it is about this document
        return {"problem": f"Its parser failed: {sanitize_text(str(exc)) or type(exc).__name__}"}
    return {
        "text": sanitize_text(parsed.text),
        "title": sanitize_text(parsed.title),
        "page_starts": parsed.page_starts,
    }


def _limit(kind: int, soft: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    try:
        resource.setrlimit(kind, (allowed, hard))
    except (OSError, ValueError):  # macOS refuses some; the wall clock still holds
        return


def _cpu_used_s() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime + usage.ru_stime) + 1


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
