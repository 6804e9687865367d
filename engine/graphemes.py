"""Where a text may be cut without tearing what a reader sees as one character."""

import regex

_CLUSTER = regex.compile(r"\X")
#: Characters that begin a cluster of their own: counting clusters may start at the last one before the cut.
_ANCHOR = regex.compile(r"(?r)[\x20-\x7e\s\p{Han}\p{Hiragana}\p{Katakana}]")
#: How far back an anchor is looked for, in characters; a longer cluster may be cut.
_LOOKBACK = 1024


def cluster_start(text: str, position: int) -> int:
    """Start of the grapheme cluster that a cut at `position` would tear; `position` when it tears none."""
    if position <= 0 or position >= len(text) or text[position - 1 : position + 1].isascii():
        return position
    lowest = max(0, position - _LOOKBACK)
    anchor = _ANCHOR.search(text, lowest, position)
    # whether a cluster ends before a character depends on nothing after that character
    for match in _CLUSTER.finditer(text, anchor.start() if anchor else lowest, position + 1):
        if match.end() >= position:
            return position if match.end() == position else match.start()
    return position
