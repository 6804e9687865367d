"""Cutting a long text into windows whose tokens, joined, are the tokens of the whole text.

Tokenizers slow down on long inputs, and some of them take a text without spaces for one word, which costs the
square of its length. In windows the time is linear whatever the text.
"""

from collections.abc import Iterator

from embedctl.engine.graphemes import cluster_start

#: Longest window, in characters; of the sizes from 4 to 128 KiB this one is the fastest with WordPiece.
WINDOW_CHARS = 8192


def split_windows(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of windows that cover the text in order; one window when the text is short."""
    start = 0
    while len(text) - start > WINDOW_CHARS:
        end = _border(text, start + WINDOW_CHARS // 2, start + WINDOW_CHARS)
        yield start, end
        start = end
    yield start, len(text)


def _border(text: str, low: int, high: int) -> int:
    """The best place in (low, high] to end a window.

    Before a single space between words the tokens of both sides are what they are in the whole text, for all
    families of tokenizers: byte-level ones and SentencePiece take the space as part of the next word.
    """
    space = text.rfind(" ", low, high)
    while space > low:
        if not text[space - 1].isspace() and not text[space + 1].isspace():
            return space
        space = text.rfind(" ", low, space)
    newline = text.rfind("\n", low, high)
    if newline > low:
        return newline + 1
    whitespace = next((at for at in range(high - 1, low, -1) if text[at].isspace()), None)
    if whitespace is not None:
        return whitespace
    cut = cluster_start(text, high)
    return cut if cut > low else high
