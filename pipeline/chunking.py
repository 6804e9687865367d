"""Cutting a document into chunks that fit the model, by the model's own tokens.

The text is encoded once, and chunks are slices of its tokens. What a worker embeds is decided here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from embedctl.engine.tokenizer import Ints, TextTokenizer, TokenSpans
from embedctl.pipeline.borders import Borders
from embedctl.pipeline.errors import ConfigurationError

STRATEGIES = ("tokens", "none")
#: Tokens of text in a chunk unless told otherwise, if the model reads as many. The bundled MiniLM reads 254
#: and gets them all: most abstracts stay whole. Models that read thousands stay at the size of a
#: passage, because a vector over several topics is near to none of them.
DEFAULT_CHUNK_TOKENS = 510
#: Tokens that a chunk repeats of the one before it: one or two sentences, so that what is said around a cut
#: is found from both sides. Costs an eighth more work at 254 tokens per chunk.
DEFAULT_OVERLAP = 32
#: Fewer tokens than this are no passage.
MIN_CHUNK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents are cut; a version is bound to one for ever.

    strategy: "tokens", or "none" (the document whole, cut where the model stops reading).
    chunk_tokens: tokens of text per chunk, without specials and prompt; None: as many as the model reads, at
        most DEFAULT_CHUNK_TOKENS.
    overlap: tokens that a chunk repeats of the one before, at most half of chunk_tokens.
    """

    strategy: str = "tokens"
    chunk_tokens: int | None = None
    overlap: int = DEFAULT_OVERLAP

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ConfigurationError(f"Chunking {self.strategy!r} is not one of {', '.join(STRATEGIES)}.")
        if self.strategy == "none" and (self.chunk_tokens is not None or self.overlap):
            raise ConfigurationError(
                "Chunking none keeps documents whole: leave out --chunk-tokens and --overlap."
            )
        if self.chunk_tokens is not None and self.chunk_tokens < MIN_CHUNK_TOKENS:
            raise ConfigurationError(
                f"A chunk of {self.chunk_tokens} tokens is too small: take at least {MIN_CHUNK_TOKENS}."
            )
        if self.overlap < 0:
            raise ConfigurationError(f"An overlap of {self.overlap} tokens is negative: take 0 or more.")
        if self.chunk_tokens is not None:
            self.check_overlap(self.chunk_tokens)

    @classmethod
    def of(cls, strategy: str, chunk_tokens: int | None = None, overlap: int | None = None) -> "Chunking":
        """From options of which None means the default of the strategy."""
        default = 0 if strategy == "none" else DEFAULT_OVERLAP
        return cls(strategy, chunk_tokens, default if overlap is None else overlap)

    def check_overlap(self, chunk_tokens: int) -> None:
        """Raises ConfigurationError when the overlap leaves a chunk too little of its own."""
        if self.overlap > chunk_tokens // 2:
            raise ConfigurationError(
                f"An overlap of {self.overlap} tokens is more than half of a chunk of {chunk_tokens}: "
                f"take --overlap {chunk_tokens // 2} or less."
            )

    def to_json(self) -> str:
        """Canonical: equal chunkings have equal JSON."""
        record: dict[str, Any] = {"strategy": self.strategy}
        if self.strategy == "tokens":
            record |= {"chunk_tokens": self.chunk_tokens, "overlap": self.overlap}
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_json(cls, text: str) -> "Chunking":
        record = orjson.loads(text)
        return cls.of(record["strategy"], record.get("chunk_tokens"), record.get("overlap"))


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A span of a document's text, with the exact input that the model gets for it.

    ordinal: 0, 1, ... within the document. start, end: `text[start:end]` is the chunk, in characters.
    token_ids: (n,) int32, specials and prompt included.
    num_prompt_tokens: leading ones that pooling leaves out.
    is_truncated: True when the document goes on after the chunk and is in no other one.
    input_hash: 32 hex digits over what reaches the model.
    """

    ordinal: int
    start: int
    end: int
    token_ids: Ints
    num_prompt_tokens: int
    is_truncated: bool
    input_hash: str

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class Chunker:
    """Cuts documents for one version. Threads may share it."""

    def __init__(
        self, tokenizer: TextTokenizer, chunking: Chunking, max_tokens: int, prompt: str = ""
    ) -> None:
        """max_tokens: what one input may have, specials included. prompt: put before every chunk.

        Raises ConfigurationError when prompt, chunk size and overlap do not fit into max_tokens.
        """
        self._tokenizer = tokenizer
        self._chunking = chunking
        self._prompt = prompt
        self._room = max_tokens - tokenizer.num_special_tokens
        self._num_prompt_tokens = tokenizer.num_prompt_tokens(prompt)
        self.chunk_tokens = self._checked_budget(max_tokens)

    def chunk(self, text: str) -> list[Chunk]:
        """The chunks in order; none when the text has no token but whitespace.

        Their spans cover the text but for whitespace between them.
        """
        return next(self.chunk_batch([text]))

    def chunk_batch(self, texts: Sequence[str]) -> Iterator[list[Chunk]]:
        """The chunks of each text in order; the tokenizer gets many short texts at once."""
        at_least = self._room if self._chunking.strategy == "none" else None
        inputs = [self._prompt + text for text in texts]
        for text, tokens in zip(
            texts, self._tokenizer.encode_spans_batch(inputs, at_least=at_least), strict=True
        ):
            yield self._cut(text, tokens)

    def _cut(self, text: str, tokens: TokenSpans) -> list[Chunk]:
        whole = self._chunking.strategy == "none"
        num_prompt, body = _split_prompt(tokens, len(self._prompt))
        lead = np.concatenate((self._tokenizer.prefix_ids, tokens.ids[:num_prompt]))
        if not len(body) or not text.strip():
            return []
        if whole:
            return [self._whole(text, lead, body, self._room - num_prompt)]
        budget = min(self.chunk_tokens, self._room - num_prompt)
        if len(body) <= budget:
            return [self._whole(text, lead, body, budget)]
        return self._pieces(text, lead, body, budget)

    def _checked_budget(self, max_tokens: int) -> int:
        """Tokens of text per chunk."""
        num_prompt = len(self._tokenizer.encode_spans(self._prompt)) if self._prompt else 0
        budget = self._room - num_prompt
        if budget < MIN_CHUNK_TOKENS:
            raise ConfigurationError(
                f"The model reads {max_tokens} tokens and the prompt takes {num_prompt} of them, "
                f"which leaves {budget} for text: shorten the prompt or take a model that reads more."
            )
        wanted = self._chunking.chunk_tokens
        if wanted is not None and wanted > budget:
            raise ConfigurationError(
                f"A chunk of {wanted} tokens does not fit: the model reads {max_tokens} tokens and has room "
                f"for {budget} of text beside its own and the prompt's; take --chunk-tokens {budget} or less."
            )
        chunk_tokens = min(wanted or DEFAULT_CHUNK_TOKENS, budget)
        self._chunking.check_overlap(chunk_tokens)
        return chunk_tokens

    def _whole(self, text: str, lead: Ints, body: TokenSpans, room: int) -> Chunk:
        """All of the text that the model reads, as one chunk."""
        start, stop = len(text) - len(text.lstrip()), len(text.rstrip())
        body = _inside(body, start, stop)
        if len(body) <= room:
            return self._make(0, start, stop, lead, body.ids)
        end = max(start + 1, len(text[: int(body.ends[:room].max())].rstrip()))
        return self._make(0, start, end, lead, body.ids[:room], is_truncated=True)

    def _pieces(self, text: str, lead: Ints, body: TokenSpans, budget: int) -> list[Chunk]:
        # offsets may fall where a normalizer reorders combining marks; borders are looked up by bisection
        starts, ends = np.maximum.accumulate(body.starts), np.maximum.accumulate(body.ends)
        borders = Borders(text, starts, ends)
        chunks: list[Chunk] = []
        for first, stop in _slices(borders, budget, self._chunking.overlap):
            start, end = _span(borders, first, stop)
            if start < end:
                piece = TokenSpans(body.ids[first:stop], starts[first:stop], ends[first:stop])
                chunks.append(self._make(len(chunks), start, end, lead, _inside(piece, start, end).ids))
        return chunks

    def _make(
        self, ordinal: int, start: int, end: int, lead: Ints, ids: Ints, *, is_truncated: bool = False
    ) -> Chunk:
        token_ids = np.concatenate((lead, ids, self._tokenizer.suffix_ids))
        num_prompt_tokens = min(self._num_prompt_tokens, len(token_ids) - 1)
        input_hash = hash_input(token_ids, num_prompt_tokens)
        return Chunk(ordinal, start, end, token_ids, num_prompt_tokens, is_truncated, input_hash)


def hash_input(token_ids: Ints, num_prompt_tokens: int = 0) -> str:
    """32 hex digits: equal exactly where the model would compute the same vector."""
    hasher = hashlib.blake2b(token_ids.astype("<i4", copy=False).tobytes(), digest_size=16)
    if num_prompt_tokens:
        hasher.update(b"prompt" + num_prompt_tokens.to_bytes(4, "little"))
    return hasher.hexdigest()


def _split_prompt(tokens: TokenSpans, prompt_chars: int) -> tuple[int, TokenSpans]:
    """How many tokens are the prompt's, and the others with spans in the text itself.

    A token that begins in the prompt and ends in the text (its space and the first word) is the text's.
    """
    if not prompt_chars:
        return 0, tokens
    in_text = tokens.ends > prompt_chars
    num_prompt = int(np.argmax(in_text)) if in_text.any() else len(tokens)
    starts = np.maximum(tokens.starts[num_prompt:] - prompt_chars, 0)
    return num_prompt, TokenSpans(tokens.ids[num_prompt:], starts, tokens.ends[num_prompt:] - prompt_chars)


def _inside(tokens: TokenSpans, start: int, end: int) -> TokenSpans:
    """Without the tokens of outer whitespace: the model reads what the span says, and equal spans alike."""
    touches = np.flatnonzero((tokens.ends > start) & (tokens.starts < end))
    if not len(touches):
        return tokens
    kept = slice(int(touches[0]), int(touches[-1]) + 1)
    return TokenSpans(tokens.ids[kept], tokens.starts[kept], tokens.ends[kept])


def _slices(borders: Borders, budget: int, overlap: int) -> Iterator[tuple[int, int]]:
    """(first token, token after the last) of each chunk."""
    first, num_tokens = 0, len(borders.starts)
    text_end = len(borders.text.rstrip())
    while num_tokens - first > budget:
        # in the last quarter a good border is worth more than a full chunk
        cut = borders.best_cut(first + 1, first + budget - budget // 4, first + budget)
        yield first, cut
        if borders.starts[cut] >= text_end:
            return
        # a chunk that a giant cluster cut short shares at most half of itself, so that each one gets on
        first = borders.best_start(max(cut - overlap, (first + cut + 1) // 2), cut) if overlap else cut
    yield first, num_tokens


def _span(borders: Borders, first: int, stop: int) -> tuple[int, int]:
    """Characters of a chunk without whitespace around it; empty when there is nothing else.

    It reaches from its first token to the next chunk's: characters without a token belong to a chunk too.
    """
    start = int(borders.starts[first]) if first else 0
    if stop == len(borders.starts):
        end = len(borders.text)
    else:
        end = int(borders.ends[stop - 1] if borders.is_torn(stop) else borders.starts[stop])
    piece = borders.text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
