"""One file -> a document, the reason why it cannot be read, or nothing because it is not text."""

import logging
import os
import re
from typing import Any

from embedctl.pipeline.document import Document, Draw, Unreadable
from embedctl.pipeline.readers.content import (
    BINARY_SUFFIXES,
    HTML_SUFFIXES,
    TEXT_SUFFIXES,
    looks_binary,
    suffix_of,
)
from embedctl.pipeline.readers.decoding import Decoded, decode, hides_in_ascii
from embedctl.pipeline.readers.html import declared_encoding
from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.parser_process import ParserProcess
from embedctl.pipeline.readers.problem import NotText, Problem, display_name
from embedctl.pipeline.readers.regular_file import read_file
from embedctl.pipeline.readers.sanitize import sanitize_text
from embedctl.pipeline.readers.tally import NOT_TEXT, Tally

logger = logging.getLogger(__name__)

#: Name and version of what made the text: a new version reads every such file again.
TEXT_READER, HTML_READER, PDF_READER = "text/1", "html/1", "pdf/1"

#: What a file with the name of a text may hold of control characters before it is not one.
_TEXT_SHARE = 0.3
_MARKDOWN = frozenset({".md", ".markdown", ".mdx"})
_HEADING = re.compile(r"^# +(\S.*?)[ #]*$", re.MULTILINE)
_HEADING_CHARS = 4096


class FileReader:
    """Reads files one after the other; holds the parser process that they share."""

    def __init__(self, options: ReaderOptions, parser: ParserProcess, tally: Tally) -> None:
        self._options = options
        self._parser = parser
        self._tally = tally

    def read(self, name: str, path: str, position: int, draw: Draw) -> Document | Unreadable | None:
        """name: relative to the root; path: where the bytes are. None: not text, counted in the tally."""
        doc_id = display_name(name)
        suffix = suffix_of(os.path.basename(name))
        if suffix in BINARY_SUFFIXES:
            self._skip(doc_id)
            return None
        observation = draw()
        try:
            text, reader, metadata = self._extract(path, suffix)
        except NotText:
            self._skip(doc_id)
            return None
        except Problem as exc:
            return Unreadable(doc_id, position, str(exc))
        named = {"name": os.path.basename(doc_id), "suffix": display_name(suffix)}
        return Document(doc_id, position, observation, text, reader, named | metadata)

    def _skip(self, doc_id: str) -> None:
        self._tally.skipped[NOT_TEXT] += 1
        logger.debug("Skipped %s: not text", doc_id, extra={"action": "file_skipped"})

    def _extract(self, path: str, suffix: str) -> tuple[str, str, dict[str, Any]]:
        """Canonical text, reader and what the content says about itself."""
        is_text = suffix in TEXT_SUFFIXES or suffix in HTML_SUFFIXES
        sniff = not is_text and suffix != ".pdf" and not self._reads_any_bytes
        content = read_file(path, self._options.max_document_bytes, sniff)
        if suffix == ".pdf":
            return self._extract_pdf(content)
        if not self._reads_any_bytes and looks_binary(content, _TEXT_SHARE if is_text else 0.02):
            raise NotText
        if suffix in HTML_SUFFIXES:
            return self._extract_html(content)
        return self._extract_text(content, suffix)

    @property
    def _reads_any_bytes(self) -> bool:
        """True when the configured encoding has control bytes in plain text, as UTF-16 has."""
        return self._options.encoding is not None and hides_in_ascii(self._options.encoding)

    def _extract_pdf(self, content: bytes) -> tuple[str, str, dict[str, Any]]:
        parsed = self._parser.parse("pdf", content)
        metadata: dict[str, Any] = {"pages": parsed.page_starts}
        if parsed.title:
            metadata["title"] = parsed.title
        return parsed.text, PDF_READER, metadata

    def _extract_html(self, content: bytes) -> tuple[str, str, dict[str, Any]]:
        decoded = decode(content, self._options.encoding, declared_encoding(content))
        parsed = self._parser.parse("html", _canonical(decoded.text).encode())
        metadata = self._encoding_of(decoded)
        if parsed.title:
            metadata["title"] = parsed.title
        return parsed.text, HTML_READER, metadata

    def _extract_text(self, content: bytes, suffix: str) -> tuple[str, str, dict[str, Any]]:
        decoded = decode(content, self._options.encoding)
        text = _canonical(decoded.text)
        metadata = self._encoding_of(decoded)
        if suffix in _MARKDOWN and (heading := _HEADING.search(text, 0, _HEADING_CHARS)):
            metadata["title"] = heading.group(1)
        return text, TEXT_READER, metadata

    def _encoding_of(self, decoded: Decoded) -> dict[str, Any]:
        if decoded.encoding == "utf-8":
            return {}
        if decoded.is_certain:
            return {"encoding": decoded.encoding}
        self._tally.num_guessed += 1
        return {"encoding": decoded.encoding, "encoding_confidence": "low"}


def _canonical(text: str) -> str:
    """Line breaks as \\n, as Python reads text files; NUL and lone surrogates replaced."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return sanitize_text(text)
