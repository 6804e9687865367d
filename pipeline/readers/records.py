"""A file of records, one JSON object a line, plain or gzipped."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from embedctl.pipeline.document import Document, Draw, Unreadable
from embedctl.pipeline.errors import SourceError
from embedctl.pipeline.readers.lines import bounded_lines, open_lines
from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.problem import Problem, reason_of
from embedctl.pipeline.readers.record import BadRecord, Record, find_id, parse_record
from embedctl.pipeline.readers.regular_file import identity, open_regular
from embedctl.pipeline.readers.tally import Tally

#: Name and version of what made the text.
READER = "jsonl/1"

#: Stage of a bad line whose record's id is not known: which document it was cannot be said.
LINE_STAGE = "line"


class RecordSource:
    """The records of one file. Their order is the file's; blank lines count for nothing."""

    def __init__(self, path: Path, options: ReaderOptions) -> None:
        self.path = path
        self.tally = Tally()
        self._options = options

    def read(self, draw: Draw) -> Iterator[Document | Unreadable]:
        """Yield the records; memory is that of one line.

        A bad line is reported under its record's id where one can be found, else as "line 7" with LINE_STAGE.
        Raises SourceError when the file ends early, is damaged or changes: the enumeration is not complete.
        """
        self.tally.clear()
        observation = draw()
        for position, (number, line) in enumerate(self._lines()):
            try:
                record = self._parse(line)
            except BadRecord as exc:
                yield _unreadable(number, line, position, exc)
            else:
                yield Document(record.id, position, observation, record.text, READER, record.metadata)

    def _parse(self, line: bytes) -> Record:
        max_bytes = self._options.max_document_bytes
        if len(line) > max_bytes:
            raise BadRecord(f"it has more than {max_bytes:,} bytes (max_document_bytes)")
        return parse_record(_as_utf8(line, self._options.encoding) if self._options.encoding else line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Number from 1 and bytes of each line that is not blank."""
        number = 0
        try:
            with open_regular(str(self.path)) as fd, ExitStack() as stack:
                before = identity(fd)
                stream = open_lines(fd, self._options.encoding, stack)
                for number, line in enumerate(bounded_lines(stream, self._options.max_document_bytes), 1):
                    if not line.isspace():
                        yield number, line
                if identity(fd) != before:
                    raise Problem("It changed while it was being read; run again when nothing writes to it.")
        except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as exc:
            raise SourceError(f"{self.path} is cut off or damaged after line {number}: {exc}.") from exc
        except OSError as exc:
            raise SourceError(f"{self.path} cannot be read. {reason_of(exc)}") from exc
        except Problem as exc:
            raise SourceError(f"{self.path} cannot be read. {exc}") from exc


def _as_utf8(line: bytes, encoding: str) -> bytes:
    """The line in UTF-8; it is in the configured encoding when it is not that already."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        try:
            return line.decode(encoding).encode("utf-8")
        except UnicodeDecodeError as exc:
            raise BadRecord(f"it is not valid {encoding}: byte 0x{line[exc.start]:02x}") from exc
    return line


def _unreadable(number: int, line: bytes, position: int, exc: BadRecord) -> Unreadable:
    doc_id = find_id(line)
    reason = f"Line {number} is no record: {exc}."
    if doc_id is None:
        return Unreadable(f"line {number}", position, reason, LINE_STAGE)
    return Unreadable(doc_id, position, reason)
