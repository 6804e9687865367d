"""Sources of files: a folder, or one file by itself."""

from collections.abc import Iterator
from pathlib import Path

from embedctl.pipeline.document import Document, Draw, Unreadable
from embedctl.pipeline.errors import SourceError
from embedctl.pipeline.readers.files import FileReader
from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.parser_process import ParserProcess
from embedctl.pipeline.readers.problem import Problem, display_name
from embedctl.pipeline.readers.rules import Rules
from embedctl.pipeline.readers.tally import Tally
from embedctl.pipeline.readers.walk import File, Found, Omission, Walk


class FolderSource:
    """The files below a folder. root: without links."""

    def __init__(self, root: Path, options: ReaderOptions) -> None:
        self.root = root
        self.tally = Tally()
        self._options = options
        self._rules = Rules(options)

    def read(self, draw: Draw) -> Iterator[Document | Unreadable]:
        """Yield documents in order of their ids. Raises SourceError when the folder is unreadable."""
        self.tally.clear()
        position = 0
        with ParserProcess(self._options) as parser:
            reader = FileReader(self._options, parser, self.tally)
            for found in self._walk():
                item = self._item(found, reader, position, draw)
                if item is not None:
                    yield item
                    position += 1

    def _walk(self) -> Iterator[Found]:
        try:
            yield from Walk(str(self.root), self._rules)
        except Problem as exc:
            raise SourceError(f"The folder {self.root} cannot be read. {exc}") from exc

    def _item(
        self, found: Found, reader: FileReader, position: int, draw: Draw
    ) -> Document | Unreadable | None:
        match found:
            case File(name, path):
                return reader.read(name, path, position, draw)
            case Omission(_, reason):
                self.tally.skipped[reason] += 1
                return None
            case _:
                return Unreadable(display_name(found.name), position, found.reason)


class FileSource:
    """One file, named by the user: include, exclude and .gitignore say nothing about it."""

    def __init__(self, path: Path, options: ReaderOptions) -> None:
        self.path = path
        self.tally = Tally()
        self._options = options

    def read(self, draw: Draw) -> Iterator[Document | Unreadable]:
        """Yield the document; a file that is not text is reported, for it was asked for."""
        self.tally.clear()
        with ParserProcess(self._options) as parser:
            reader = FileReader(self._options, parser, self.tally)
            item = reader.read(self.path.name, str(self.path), 0, draw)
        yield item or Unreadable(display_name(self.path.name), 0, "It is not text.")
