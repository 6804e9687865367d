"""Where a tokenized text may be cut, and how good each place is."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embedctl.engine.graphemes import cluster_start
from embedctl.engine.tokenizer import Ints, TokenSpans

#: Ranks of a cut before a token, best last. TORN is inside a character that takes several tokens.
TORN, CHARACTER, WORD, LINE, SENTENCE, PARAGRAPH = range(-1, 5)

_NEWLINE = 10
_ENDER, _WIDE_ENDER, _CLOSER = 1, 2, 4
#: Whitespace and the marks below have smaller code points; larger ones are looked up as the last of these.
_TABLE_SIZE = 0x10000


def _table() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    space = np.array([chr(code).isspace() for code in range(_TABLE_SIZE)])
    role = np.zeros(_TABLE_SIZE, np.uint8)
    role[[ord(mark) for mark in ".!?…"]] = _ENDER
    # these end a sentence without a space after them
    role[[ord(mark) for mark in "。！？．｡"]] = _WIDE_ENDER
    role[[ord(mark) for mark in "\"')]}”’»」』）"]] = _CLOSER
    return space, role


_IS_SPACE, _ROLE = _table()


@dataclass(frozen=True, slots=True, eq=False)
class Borders:
    """The places between the n tokens of a text; place t is before token t.

    rank: (n,) int8, see above. stops: where a chunk that ends at t ends in the text, whitespace left out.
    starts: where a chunk that begins with token t begins. Both (n,), in characters.
    """

    text: str
    rank: npt.NDArray[np.int8]
    stops: Ints
    starts: Ints
    token_starts: Ints

    def best_cut(self, lowest: int, low: int, high: int) -> int:
        """The last place of the best rank in [low, high]; an earlier one, from lowest, to keep a cluster whole."""
        ranks = self.rank[low : high + 1]
        best = int(ranks.max())
        if best > CHARACTER:
            return high - int(np.argmax(ranks[::-1] == best))
        untorn = np.flatnonzero(self.rank[lowest : high + 1] > TORN)
        if not len(untorn):
            return high
        place = lowest + int(untorn[-1])
        whole = self._cluster_place(place)
        return whole if whole >= lowest else place

    def best_start(self, low: int, high: int) -> int:
        """Where an overlap from low on begins: with a sentence if one begins early enough, else with a word."""
        ranks = self.rank[low:high]
        for wanted in (ranks[: len(ranks) // 2] >= SENTENCE, ranks >= WORD):
            if wanted.any():
                return low + int(np.argmax(wanted))
        return next(
            (at for at in range(low, high) if self.rank[at] > TORN and self._cluster_place(at) == at), high
        )

    def _cluster_place(self, place: int) -> int:
        """Where the grapheme cluster begins that a cut here would tear; this place when it tears none."""
        start = int(self.token_starts[place])
        begin = cluster_start(self.text, start)
        return place if begin == start else int(np.searchsorted(self.token_starts, begin))


def find_borders(text: str, tokens: TokenSpans) -> Borders:
    """Rank every place between tokens. Time and memory are linear in the text."""
    codes = np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), _TABLE_SIZE - 1).astype(np.uint16)
    # positions of characters that are no whitespace, with the text's end behind them
    solid = np.append(np.flatnonzero(~_IS_SPACE[codes]), len(text)).astype(np.int32)
    num_before = np.searchsorted(solid, tokens.starts)
    stops = np.where(num_before > 0, solid[num_before - 1] + 1, 0)
    starts = solid[num_before]
    rank = _ranks(codes, stops, starts)
    rank[1:][tokens.starts[1:] < np.maximum.accumulate(tokens.ends)[:-1]] = TORN
    return Borders(text, rank, stops, starts, tokens.starts)


def _ranks(codes: npt.NDArray[np.uint16], stops: Ints, starts: Ints) -> npt.NDArray[np.int8]:
    newlines = np.flatnonzero(codes == _NEWLINE)
    num_newlines = np.searchsorted(newlines, starts) - np.searchsorted(newlines, stops)
    spaced = starts > stops
    last, before_last = _ROLE[codes[np.maximum(stops - 1, 0)]], _ROLE[codes[np.maximum(stops - 2, 0)]]
    ender = np.where(last == _CLOSER, before_last, last)
    rank = np.where(spaced, WORD, CHARACTER).astype(np.int8)
    rank[num_newlines == 1] = LINE
    rank[(ender == _WIDE_ENDER) | (spaced & (ender == _ENDER))] = SENTENCE
    rank[num_newlines > 1] = PARAGRAPH
    return rank
