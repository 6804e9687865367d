"""Where a tokenized text is cut best: between paragraphs, sentences, lines, words, characters."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from embedctl.engine.graphemes import cluster_start
from embedctl.engine.tokenizer import Ints

#: Wide marks end a sentence without a space after them.
_SENTENCE_END = re.compile(r"""(?:[.!?…]["')\]}”’»]?(?=\s)|[。！？．｡]["')\]}”’»」』）]?)""")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True, eq=False)
class Borders:
    """The places between the tokens of a text; place t is before token t.

    starts, ends: (n,) int32, characters where tokens begin and end, neither ever falling.
    """

    text: str
    starts: Ints
    ends: Ints

    def best_cut(self, lowest: int, low: int, high: int) -> int:
        """The last place of the best kind in [low, high]; an earlier one to keep a cluster whole."""
        begin, end = int(self.starts[low]), int(self.starts[high]) + 1
        for search in (_last_paragraph, _last_sentence, _last_line, _last_space):
            border = search(self.text, begin, end)
            if border is not None:
                place = bisect_left(self.starts, border, low, high)
                if not self.is_torn(place):
                    return place
        return self._character_cut(lowest, high)

    def best_start(self, low: int, high: int) -> int:
        """Where an overlap from low on begins: with a sentence if one begins early, else with a word."""
        begin, middle, end = (int(self.starts[place]) for place in (low, (low + high) // 2, high))
        sentence = _SENTENCE_END.search(self.text, begin, middle)
        if sentence:
            return bisect_left(self.starts, sentence.end(), low, high)
        space = _SPACE.search(self.text, begin, end)
        if space:
            return bisect_left(self.starts, space.start(), low, high)
        return next(
            (at for at in range(low, high) if not self.is_torn(at) and self._cluster_place(at) == at), high
        )

    def is_torn(self, place: int) -> bool:
        """True inside a character that takes several tokens."""
        return bool(self.ends[place - 1] > self.starts[place])

    def _character_cut(self, lowest: int, high: int) -> int:
        """The last place up to high between characters; high where a single one is longer than the chunk."""
        place = next((at for at in range(high, lowest - 1, -1) if not self.is_torn(at)), None)
        if place is None:
            return high
        whole = self._cluster_place(place)
        return whole if whole >= lowest else place

    def _cluster_place(self, place: int) -> int:
        """Where the grapheme cluster begins that a cut here would tear; this place when it tears none."""
        start = int(self.starts[place])
        begin = cluster_start(self.text, start)
        return place if begin == start else bisect_left(self.starts, begin, 0, place)


def _last_paragraph(text: str, begin: int, end: int) -> int | None:
    if text.count("\n", begin, end) < 2:  # most regions have none, and counting is cheap
        return None
    return next((match.start() for match in _backwards(_PARAGRAPH, text, begin, end)), None)


def _last_sentence(text: str, begin: int, end: int) -> int | None:
    return next((match.end() for match in _backwards(_SENTENCE_END, text, begin, end)), None)


def _last_line(text: str, begin: int, end: int) -> int | None:
    at = text.rfind("\n", begin, end)
    return at if at >= 0 else None


def _last_space(text: str, begin: int, end: int) -> int | None:
    at = text.rfind(" ", begin, end)
    if at >= 0:
        return at
    return next((match.start() for match in _backwards(_SPACE, text, begin, end)), None)


def _backwards(pattern: re.Pattern[str], text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    return reversed(list(pattern.finditer(text, begin, end)))
