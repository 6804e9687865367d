"""Where a tokenized text is cut best: between paragraphs, sentences, lines, words, characters."""

from bisect import bisect_left
from dataclasses import dataclass

import regex  # type: ignore[import-untyped]

from embedctl.engine.graphemes import cluster_start
from embedctl.engine.tokenizer import Ints

_CLOSERS = r"""["')\]}”’»」』）]?"""
_PARAGRAPH = r"(?=\n[^\S\n]*\n)"
# the wide marks end a sentence without a space after them
_SENTENCE = rf"(?:(?<=[.!?…]{_CLOSERS})(?=\s)|(?<=[。！？．｡]{_CLOSERS}))"
_LINE = r"(?=\n)"
_WORD = r"(?=\s)"

#: Searched from the end of a chunk backwards.
_CUTS = [regex.compile("(?r)" + border) for border in (_PARAGRAPH, _SENTENCE, _LINE, _WORD)]
#: Searched from where an overlap may begin.
_SENTENCE_START = regex.compile(_SENTENCE)
_WORD_START = regex.compile(_WORD)


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
        for border in _CUTS:
            match = border.search(self.text, begin, end)
            if match:
                place = bisect_left(self.starts, match.start(), low, high)
                if not self.is_torn(place):
                    return place
        return self._character_cut(lowest, high)

    def best_start(self, low: int, high: int) -> int:
        """Where an overlap from low on begins: with a sentence if one begins early, else with a word."""
        begin, middle, end = (int(self.starts[place]) for place in (low, (low + high) // 2, high))
        match = _SENTENCE_START.search(self.text, begin, middle) or _WORD_START.search(self.text, begin, end)
        if match:
            return bisect_left(self.starts, match.start(), low, high)
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
