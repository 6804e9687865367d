"""DummyEngine: everything of an engine but the mathematics."""

import numpy as np
import pytest

from embedctl.engine.base import EmbeddingEngine
from embedctl.engine.dummy import DummyEngine
from embedctl.engine.engine import load_engine
from embedctl.engine.errors import EngineDied, InputTooLong, UnsupportedModel
from embedctl.engine.packing import pack
from embedctl.engine.spec import dummy_spec


def ids(*tokens):
    return np.array(tokens, dtype=np.int32)


@pytest.fixture
def engine() -> EmbeddingEngine:
    return load_engine(dummy_spec(64))


def test_equal_ids_give_equal_unit_vectors_and_others_point_elsewhere(engine):
    vectors = engine.submit([ids(1, 2), ids(2, 1), ids(1, 2), ids(1)]).result(0)

    assert vectors.shape == (4, 64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert abs(vectors[0] @ vectors[1]) < 0.6
    assert abs(vectors[0] @ vectors[3]) < 0.6


def test_vectors_are_the_same_in_every_process(engine):
    vector = engine.submit([ids(101, 7592, 102)]).result(0)[0]

    np.testing.assert_allclose(vector[:3], [-0.1170918, -0.1635980, 0.1022940], atol=1e-6)


def test_texts_are_embedded_as_their_token_ids(engine):
    vectors = engine.embed(["a text", "another", "a text"], "document")

    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.array_equal(vectors[0], vectors[1])


def test_a_step_gives_the_vectors_of_its_packed_sequences(engine):
    handle = engine.step(pack([ids(1), ids(2, 3)]))

    assert handle.is_ready()
    np.testing.assert_array_equal(handle.result(), engine.submit([ids(1), ids(2, 3)]).result(0))


def test_it_counts_what_it_was_asked_for_and_reports_steps(engine):
    done = []

    engine.submit([np.ones(500, dtype=np.int32)] * 10, on_step=done.append).result(0)
    engine.submit([]).result(0)

    assert done == [4, 8, 10]
    assert engine.num_requests == 1
    assert engine.counters.num_sequences == 10
    assert engine.counters.num_tokens == 5000


def test_a_fault_raises_for_the_sequences_that_it_picks():
    engine = DummyEngine(dummy_spec(8), fault=lambda seq: ValueError("cursed") if 666 in seq else None)

    with pytest.raises(ValueError, match="cursed"):
        engine.submit([ids(1), ids(666)]).result(0)

    assert len(engine.submit([ids(1)]).result(0)) == 1


def test_each_step_takes_the_delay():
    engine = DummyEngine(dummy_spec(8, delay_ms=1000), delay_s=0.01)

    engine.submit([np.ones(512, dtype=np.int32)] * 8).result(0)

    assert engine.counters.num_steps == 2
    assert 0.02 <= engine.counters.engine_s < 1


def test_dimensions_and_limits_are_those_of_a_real_engine(engine):
    assert load_engine(dummy_spec(64), dimensions=16).submit([ids(1)]).result(0).shape == (1, 16)
    with pytest.raises(UnsupportedModel, match="cut to 65"):
        load_engine(dummy_spec(64), dimensions=65)
    with pytest.raises(InputTooLong):
        engine.submit([np.ones(513, dtype=np.int32)])

    engine.close()
    assert not engine.is_alive
    with pytest.raises(EngineDied):
        engine.submit([ids(1)])
