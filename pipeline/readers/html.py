"""HTML -> text as it reads: blocks on own lines, white space as browsers show it; nothing is fetched."""

import re
from typing import Any

from embedctl.pipeline.readers.parser_process import Parsed
from embedctl.pipeline.readers.problem import Problem

_DROPPED = frozenset({"head", "script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"})
_PARAGRAPH_TAGS = (
    "p h1 h2 h3 h4 h5 h6 pre blockquote table ul ol dl figure hr "
    "section article header footer main nav aside form"
)
_LINE_TAGS = "div li tr dt dd caption figcaption address legend option summary details"
_PARAGRAPHS = frozenset(_PARAGRAPH_TAGS.split())
_LINES = frozenset(_LINE_TAGS.split())
_CELLS = frozenset({"td", "th"})
#: What browsers collapse; a no-break space stays.
_WHITE = re.compile(r"[ \t\n\f\r]+")

_DECLARED = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
#: Names that browsers read as a superset of what they say.
_ALIASES = {
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
}


def declared_encoding(content: bytes) -> str | None:
    """The encoding that the page's own <meta> names, as browsers read it."""
    match = _DECLARED.search(content, 0, 4096)
    if match is None:
        return None
    name = match.group(1).decode("ascii").lower()
    return _ALIASES.get(name, name)


def parse_html(content: bytes, max_chars: int) -> Parsed:
    """Text and title of a page. content: UTF-8. Raises Problem when the text is longer than max_chars."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(content.decode("utf-8"))
    title = tree.css_first("head > title")
    text = _Text(max_chars)
    if tree.body is not None:
        _walk(tree.body, text)
    return Parsed(text.joined(), _WHITE.sub(" ", title.text()).strip() if title else "")


def _walk(root: Any, text: "_Text") -> None:
    """Visit each node on the way in and out, without recursion: pages may be thousands of levels deep."""
    node = root
    while True:
        tag = node.tag
        child = None
        if tag == "-text":
            text.add(node.text_content)
        elif tag not in _DROPPED:
            text.enter(tag)
            child = node.first_child
        if child is not None:
            node = child
            continue
        if tag not in _DROPPED:
            text.leave(tag)
        while node.mem_id != root.mem_id and node.next is None:
            node = node.parent
            text.leave(node.tag)
        if node.mem_id == root.mem_id:
            return
        node = node.next


class _Text:
    """Collects words; breaks and spaces are written only when a word follows them."""

    def __init__(self, max_chars: int) -> None:
        self._parts: list[str] = []
        self._num_left = max_chars
        self._num_breaks = 0
        self._has_space = False
        self._num_pre = 0

    def joined(self) -> str:
        return "".join(self._parts)

    def enter(self, tag: str) -> None:
        self._break(tag)
        if tag == "br":
            self._num_breaks = min(self._num_breaks + 1, 2)
        self._num_pre += tag == "pre"

    def leave(self, tag: str) -> None:
        self._num_pre -= tag == "pre"
        self._break(tag)

    def add(self, data: str) -> None:
        if self._num_pre:
            self._write(data.replace("\r\n", "\n"))
            return
        words = _WHITE.sub(" ", data)
        if words.startswith(" "):
            self._has_space = True
        if words := words.strip(" "):
            self._write(words)
            self._has_space = _WHITE.match(data[-1]) is not None

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._num_breaks = 2
        elif tag in _LINES:
            self._num_breaks = max(self._num_breaks, 1)
        elif tag in _CELLS:
            self._has_space = True

    def _write(self, words: str) -> None:
        if self._parts and self._num_breaks:
            words = "\n" * self._num_breaks + words
        elif self._parts and self._has_space:
            words = " " + words
        self._num_breaks = 0
        self._has_space = False
        self._num_left -= len(words)
        if self._num_left < 0:
            raise Problem("Its text has more characters than max_document_bytes.")
        self._parts.append(words)
