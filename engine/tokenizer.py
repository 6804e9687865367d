"""Text in, the model's exact token ids out, by the `tokenizers` library alone.

A tokenizer is never changed after it was loaded, so any number of threads may share it (settings that change
while another thread encodes are what raises "Already borrowed").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer, normalizers

from embedctl.engine.byte_tokenizer import byte_tokenizer
from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.spec import ModelSpec
from embedctl.engine.spec_files import read_optional_json
from embedctl.engine.windows import WINDOW_CHARS, split_windows

Ints = npt.NDArray[np.int32]

#: Windows that are encoded per call: enough for all cores, few enough to bound the memory of a long text.
_WINDOWS_PER_CALL = 16
#: Short texts that are encoded per call.
_TEXTS_PER_CALL = 64


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedInput:
    """One input as the model reads it.

    token_ids: (n,) int32, specials and prompt included, n <= max_tokens.
    num_prompt_tokens: leading tokens that pooling leaves out; 0 when the model pools over its prompt.
    is_truncated: True when tokens of the text were cut off.
    """

    token_ids: Ints
    num_prompt_tokens: int = 0
    is_truncated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TokenSpans:
    """A text's tokens without specials: ids, and where each begins and ends in it. All (n,) int32."""

    ids: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.ids)


class TextTokenizer:
    """The tokenizer of one model, shared by threads.

    prefix_ids, suffix_ids: specials before and after the text. max_tokens: per input, specials included.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int, include_prompt: bool = True) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._include_prompt = include_prompt
        self.max_tokens = max_tokens
        self.prefix_ids, self.suffix_ids = _special_ids(tokenizer)

    @property
    def num_special_tokens(self) -> int:
        return len(self.prefix_ids) + len(self.suffix_ids)

    def encode_inputs(self, texts: Sequence[str], prompt: str = "") -> list[TokenizedInput]:
        """Each text behind the prompt, cut on the right to max_tokens, as sentence-transformers does it."""
        num_prompt_tokens = self.num_prompt_tokens(prompt)
        inputs = [prompt + text for text in texts]
        short = iter(self._encode_short([text for text in inputs if len(text) <= WINDOW_CHARS]))
        return [
            self.as_input(
                next(short) if len(text) <= WINDOW_CHARS else self._encode_head(text), num_prompt_tokens
            )
            for text in inputs
        ]

    def encode_spans(self, text: str, *, at_least: int | None = None) -> TokenSpans:
        """Tokens of the text with their spans, without specials.

        at_least: reading may stop once there are more tokens than this.
        """
        parts: list[tuple[Ints, Ints]] = []
        num_tokens = 0
        for start, encoding in self._encode_windows(text, with_offsets=True):
            parts.append((_ids(encoding), _offsets(encoding) + np.int32(start)))
            num_tokens += len(encoding)
            if at_least is not None and num_tokens > at_least:
                break
        ids, offsets = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        return TokenSpans(ids, offsets[:, 0], offsets[:, 1])

    def encode_spans_batch(
        self, texts: Sequence[str], *, at_least: int | None = None
    ) -> Iterator[TokenSpans]:
        """`encode_spans` of each text in order; short ones go to the tokenizer together, on all cores."""
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            some = texts[start : start + _TEXTS_PER_CALL]
            short = [text for text in some if len(text) <= WINDOW_CHARS]
            encoded = iter(self._tokenizer.encode_batch(short, add_special_tokens=False))
            for text in some:
                if len(text) <= WINDOW_CHARS:
                    yield _spans(next(encoded))
                else:
                    yield self.encode_spans(text, at_least=at_least)

    def num_prompt_tokens(self, prompt: str) -> int:
        """Leading tokens that pooling leaves out: the prompt's own and the specials before it.

        Counted as sentence-transformers does: the prompt alone, less one closing special.
        """
        if self._include_prompt or not prompt:
            return 0
        alone = self.as_input(_ids(self._tokenizer.encode(prompt, add_special_tokens=False)))
        return len(alone.token_ids) - (1 if len(self.suffix_ids) else 0)

    def as_input(self, ids: Ints, num_prompt_tokens: int = 0) -> TokenizedInput:
        """Put the specials around ids of prompt and text, which are cut to what the model reads."""
        room = self.max_tokens - self.num_special_tokens
        token_ids = np.concatenate((self.prefix_ids, ids[:room], self.suffix_ids))
        # a prompt can swallow the only token of a very short text; something is left to be pooled
        pooled_from = max(0, min(num_prompt_tokens, len(token_ids) - 1))
        return TokenizedInput(token_ids, pooled_from, is_truncated=len(ids) > room)

    def _encode_short(self, texts: list[str]) -> list[Ints]:
        return [_ids(each) for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode_head(self, text: str) -> Ints:
        """Ids of a long text's beginning, more than the model reads if there are as many."""
        parts: list[Ints] = []
        num_tokens = 0
        for _, encoding in self._encode_windows(text, with_offsets=False):
            parts.append(_ids(encoding))
            num_tokens += len(encoding)
            if num_tokens > self.max_tokens:
                break
        return np.concatenate(parts)

    def _encode_windows(self, text: str, *, with_offsets: bool) -> Iterator[tuple[int, Encoding]]:
        """(start of the window, encoding), a few windows per call, which releases the interpreter lock."""
        encode = self._tokenizer.encode_batch if with_offsets else self._tokenizer.encode_batch_fast
        remaining = split_windows(text)
        while windows := list(islice(remaining, _WINDOWS_PER_CALL)):
            encodings = encode([text[start:end] for start, end in windows], add_special_tokens=False)
            for (start, _), encoding in zip(windows, encodings, strict=True):
                yield start, encoding


def load_tokenizer(spec: ModelSpec) -> TextTokenizer:
    """Load the model's tokenizer.json, or build the dummy's byte tokenizer.

    Raises ModelFilesError when the file cannot be read, or would not do what tokenizer_config.json says.
    """
    if not spec.has_own_tokenizer:
        return TextTokenizer(byte_tokenizer(), max_tokens=spec.max_tokens, include_prompt=spec.include_prompt)
    tokenizer = _read_tokenizer(spec.tokenizer_file)
    if spec.do_lower_case:
        present = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *present])
    loaded = TextTokenizer(tokenizer, max_tokens=spec.max_tokens, include_prompt=spec.include_prompt)
    _check_config(spec.tokenizer_file, tokenizer, loaded)
    return loaded


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as exc:  # the library raises bare Exception for whatever is wrong with the file
        raise ModelFilesError(
            f"{path} cannot be read as a tokenizer ({exc}): fetch the model again."
        ) from exc


def _special_ids(tokenizer: Tokenizer) -> tuple[Ints, Ints]:
    """Ids that the post-processor puts before and after a text, found by letting it process one."""
    plain = tokenizer.encode("a", add_special_tokens=False)
    ids, whole = plain.ids, tokenizer.post_process(plain, None, True).ids
    at = next(at for at in range(len(whole) - len(ids) + 1) if whole[at : at + len(ids)] == ids)
    return np.array(whole[:at], np.int32), np.array(whole[at + len(ids) :], np.int32)


def _check_config(path: Path, tokenizer: Tokenizer, loaded: TextTokenizer) -> None:
    """Refuse a tokenizer.json that does not do what its config asks for: vectors would be silently wrong."""
    config_path = path.with_name("tokenizer_config.json")
    config = read_optional_json(config_path)
    if config.get("truncation_side", "right") != "right":
        raise UnsupportedModel(
            f"{config_path} cuts inputs on the left; embedctl cuts on the right: use another model."
        )
    for switch, name, ids in (
        ("add_bos_token", "bos_token", loaded.prefix_ids),
        ("add_eos_token", "eos_token", loaded.suffix_ids),
    ):
        if config.get(switch) and tokenizer.token_to_id(_content(config.get(name))) not in ids:
            raise ModelFilesError(
                f"{path} does not add the {name} that {config_path.name} asks for: "
                "save both again with AutoTokenizer.from_pretrained(...).save_pretrained(...)."
            )


def _content(token: Any) -> str:
    """A token is written as its string, or as an object with the string as its content."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _spans(encoding: Encoding) -> TokenSpans:
    offsets = _offsets(encoding)
    return TokenSpans(_ids(encoding), offsets[:, 0], offsets[:, 1])


def _ids(encoding: Encoding) -> Ints:
    return np.array(encoding.ids, np.int32)


def _offsets(encoding: Encoding) -> Ints:
    """(n, 2) int32: first character of each token, and the one after its last."""
    # from a flat iterator: half the time of np.array(encoding.offsets)
    flat = chain.from_iterable(encoding.offsets)
    return np.fromiter(flat, np.int32, count=2 * len(encoding)).reshape(-1, 2)
