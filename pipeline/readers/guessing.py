"""The encoding of text that is not UTF-8, when nobody has said it."""

import re
from dataclasses import dataclass

#: What browsers know. Rarer code pages win too often on short texts (Japanese read as Johab's Hangul).
_NAMES = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 iso8859_2 iso8859_5 koi8_r cp866 "
    "cp932 euc_jp gb18030 big5 cp949"
)
CANDIDATES = _NAMES.split()

#: Used when the evidence does not decide, as browsers do.
DEFAULT = "cp1252"

_LATIN = frozenset({"cp1250", "cp1254", "cp1257", "iso8859_2"})
_LATIN_TOLERANCE = 0.1
_CLEAR_LEAD = 0.02
_MIN_EVIDENCE_BYTES = 16
_SAMPLE_BYTES = 32 * 1024
_CONTEXT_BYTES = 256
_HIGH = re.compile(rb"[\x80-\xff]")
#: Bytes that are never the second half of a character in any of the candidates.
_BOUNDARY = re.compile(rb"[\x00-\x2f][^\x00-\x2f]*\Z")


@dataclass(frozen=True, slots=True)
class Guess:
    """An encoding in which the whole content is valid."""

    encoding: str
    is_certain: bool


def guess_encoding(content: bytes, sample: bytes) -> Guess | None:
    """The likeliest encoding of content that is not UTF-8; None when no candidate can decode all of it.

    sample: what telling_sample returns; it is judged, then all of the content must agree.
    """
    readings = _judge(sample)
    has_evidence = len(sample.translate(None, bytes(range(128)))) >= _MIN_EVIDENCE_BYTES
    while readings:
        name, lead = _choose(readings)
        if _can_decode(content, name):
            return Guess(name, has_evidence and lead >= _CLEAR_LEAD)
        readings = [reading for reading in readings if reading[0] != name]
    return Guess(DEFAULT, False) if _can_decode(content, DEFAULT) else None


def telling_sample(content: bytes) -> bytes:
    """The lines that are not ASCII, wherever they are, up to 32 KiB: what judging costs is bounded."""
    parts = []
    num_left = _SAMPLE_BYTES
    found = _HIGH.search(content)
    while found and num_left > 0:
        # the line is ASCII up to here, so any byte may be the first
        start = max(content.rfind(b"\n", 0, found.start()) + 1, found.start() - _CONTEXT_BYTES)
        end = content.find(b"\n", found.start()) + 1 or len(content)
        parts.append(_cut(content[start : min(end, start + num_left + 1)], num_left))
        num_left -= len(parts[-1]) + 1
        found = _HIGH.search(content, end)
    return b"".join(parts)


def _choose(readings: list[tuple[str, float]]) -> tuple[str, float]:
    """The encoding and its lead over the next one. readings: as _judge returns them."""
    best, chaos = readings[0]
    if best in _LATIN:
        # one accented letter looks alike in all of them, and the default is by far the commonest
        latin = [score for name, score in readings if name == DEFAULT and score <= chaos + _LATIN_TOLERANCE]
        if latin:
            return DEFAULT, chaos - latin[0] if len(readings) > 1 else 1.0
    return best, readings[1][1] - chaos if len(readings) > 1 else 1.0


def _judge(sample: bytes) -> list[tuple[str, float]]:
    """(encoding, chaos) of each reading that makes sense, best first; those that read the same count once."""
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, cp_isolation=CANDIDATES, enable_fallback=False)
    named = ((match.could_be_from_charset, match) for match in matches)
    return [(DEFAULT if DEFAULT in names else match.encoding, match.chaos) for names, match in named]


def _cut(line: bytes, size: int) -> bytes:
    """At most `size` bytes of the line, cut where no character can be split if there is such a place."""
    if len(line) <= size:
        return line
    boundary = _BOUNDARY.search(line[:size])
    return line[: boundary.start() + 1] if boundary else line[:size]


def _can_decode(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
