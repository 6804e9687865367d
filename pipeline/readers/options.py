"""What may be set about reading."""

from dataclasses import dataclass

from embedctl.pipeline.errors import ConfigurationError

MEBIBYTE = 1024 * 1024

#: The parser process itself maps about 100 MiB.
_LEAST = {"max_document_bytes": 1, "parse_timeout_s": 0.1, "parse_memory_bytes": 128 * MEBIBYTE}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Settings of a source.

    include, exclude: patterns as in a .gitignore, relative to the folder; include keeps what matches one.
    use_gitignore: leave out what the folder's own .gitignore files exclude.
    encoding: of text that is not UTF-8; None guesses it and records the guess in the document's metadata.
    max_document_bytes: size of a file, of a record's line, and of the text that a parser may return.
    parse_timeout_s, parse_memory_bytes: what the parser process may use for one HTML or PDF file.
    Raises ConfigurationError when a value is not allowed.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    use_gitignore: bool = True
    encoding: str | None = None
    max_document_bytes: int = 64 * MEBIBYTE
    parse_timeout_s: float = 60.0
    parse_memory_bytes: int = 2048 * MEBIBYTE

    def __post_init__(self) -> None:
        if self.encoding is not None:
            _check_encoding(self.encoding)
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least {least}.")


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)  # also refuses codecs that are no text encodings, such as base64
    except (LookupError, ValueError) as exc:
        raise ConfigurationError(
            f"encoding is {encoding!r}, which is not known; use a name such as cp1252, shift_jis or utf-16."
        ) from exc
