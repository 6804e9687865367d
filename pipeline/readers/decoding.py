"""Bytes of a file -> text, with the encoding that was used. No byte is ever dropped."""

import re
from dataclasses import dataclass

from embedctl.pipeline.readers.content import find_mark
from embedctl.pipeline.readers.guessing import guess_encoding, telling_sample
from embedctl.pipeline.readers.problem import Problem

#: Encodings in which bytes below 0x80 may not be ASCII: what passes as UTF-8 can mean something else.
_NOT_ASCII = re.compile(r"utf_?(7|16|32)|iso2022|hz|cp(037|273|424|500|1026|1140)")


@dataclass(frozen=True, slots=True)
class Decoded:
    """text: as the bytes say, line breaks and NUL included. is_certain: False of a weak guess."""

    text: str
    encoding: str
    is_certain: bool = True


def decode(content: bytes, configured: str | None = None, declared: str | None = None) -> Decoded:
    """Decode the whole content; a prefix never decides.

    In this order: byte order mark, UTF-8 when all of it is valid, the configured encoding, the one that the
    document declares about itself, a guess. Raises Problem when none fits.
    """
    if marked := find_mark(content):
        mark, encoding = marked
        return Decoded(_decode_strictly(content[len(mark) :], encoding), encoding)
    if configured and hides_in_ascii(configured):
        return Decoded(_decode_strictly(content, configured), configured)
    try:
        return Decoded(content.decode("utf-8"), "utf-8")
    except UnicodeDecodeError as exc:
        error = exc
    if configured:
        return Decoded(_decode_strictly(content, configured), configured)
    return _decode_declared(content, declared) or _decode_by_guess(content, error)


def hides_in_ascii(encoding: str) -> bool:
    """True when valid UTF-8 is no evidence against this encoding (UTF-16, ISO-2022-JP, EBCDIC)."""
    return bool(_NOT_ASCII.match(encoding.lower().replace("-", "_").replace("iso_2022", "iso2022")))


def _decode_strictly(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as exc:
        raise Problem(
            f"It is not valid {encoding}: byte 0x{content[exc.start]:02x} at offset {exc.start:,}; "
            "repair it or set its encoding."
        ) from exc


def _decode_declared(content: bytes, declared: str | None) -> Decoded | None:
    if declared is None:
        return None
    try:
        return Decoded(content.decode(declared), declared)
    except (UnicodeDecodeError, LookupError):
        return None


def _decode_by_guess(content: bytes, error: UnicodeDecodeError) -> Decoded:
    sample = telling_sample(content)
    if _is_damaged_utf8(sample):
        raise Problem(
            f"It is damaged UTF-8: byte 0x{content[error.start]:02x} at offset {error.start:,} fits no "
            "character; repair it or set its encoding."
        )
    guess = guess_encoding(content, sample)
    if guess is None:
        raise Problem("It is not UTF-8 and no other encoding fits; set its encoding.")
    return Decoded(content.decode(guess.encoding), guess.encoding, guess.is_certain)


def _is_damaged_utf8(sample: bytes) -> bool:
    """True when most of what is not ASCII is valid UTF-8: a guess would garble it all for a few bad bytes."""
    text = sample.decode("utf-8", "replace")
    num_bad = text.count("\ufffd")
    num_good = sum(len(run) for run in re.findall(r"[^\x00-\x7f\ufffd]+", text))
    return num_good >= num_bad
