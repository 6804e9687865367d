"""Requests, steps and lanes: what callers of the engine can rely on, whatever the model."""

import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest

from embedctl.engine.config import EngineConfig
from embedctl.engine.dummy import vectors_of
from embedctl.engine.engine import Engine, step_limit
from embedctl.engine.errors import (
    EngineDied,
    InputTooLong,
    InvalidEngineConfig,
    InvalidInput,
    InvalidVector,
    OutOfMemory,
)
from embedctl.engine.lanes import Lane
from embedctl.engine.scheduler import StepLimit
from embedctl.engine.spec import dummy_spec

WAIT_S = 30


def test_torch_is_not_imported_before_a_model_is_used():
    script = "import sys, embedctl.engine.engine, embedctl.engine.dummy; print('torch' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"


def ids(*tokens):
    return np.array(tokens, dtype=np.int32)


def some(count, length=5, first=1):
    return [np.full(length, first + n, dtype=np.int32) for n in range(count)]


def test_vectors_come_in_the_order_of_the_inputs_whatever_their_lengths(engine, encoder):
    sequences = [ids(*range(1, 2 + n % 9)) for n in range(50)]

    vectors = engine.submit(sequences).result(WAIT_S)

    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, vectors_of(sequences, engine.embedding_dim))


def test_a_large_request_is_split_into_steps_within_the_token_budget(engine, encoder):
    engine.submit(some(30, length=7)).result(WAIT_S)

    assert {sum(map(len, step)) for step in encoder.steps} <= {7, 14}
    assert sum(len(step) for step in encoder.steps) == 30


def test_a_padded_model_counts_rows_times_the_longest(encoder):
    encoder.is_padded = True
    engine = Engine(replace(dummy_spec(8), max_tokens=10), encoder, StepLimit(20, 10))

    engine.submit([ids(*range(10)), *some(9, length=2)]).result(WAIT_S)

    assert all(len(step) * max(map(len, step)) <= 20 for step in encoder.steps)
    assert engine.counters.num_padded_tokens == sum(len(step) * max(map(len, step)) for step in encoder.steps)
    assert 0 < engine.counters.padding_waste < 1
    engine.close()


def test_queries_overtake_bulk_work_that_is_already_queued(engine, encoder, gate):
    encoder.before = gate
    bulk = engine.submit(some(40))
    assert gate.is_entered.wait(WAIT_S)

    query = engine.submit([ids(500)], Lane.QUERY)
    gate.open()
    query.result(WAIT_S)
    bulk.result(WAIT_S)

    assert encoder.steps[1] == [[500]]


def test_within_a_lane_the_first_to_come_is_served_first(engine, encoder, gate):
    encoder.before = gate
    blocker = engine.submit([ids(999)])
    assert gate.is_entered.wait(WAIT_S)

    first, second = engine.submit(some(8, first=100)), engine.submit(some(8, first=200))
    gate.open()
    for future in (blocker, first, second):
        future.result(WAIT_S)

    served = [sequence[0] // 100 for step in encoder.steps[1:] for sequence in step]
    assert served == sorted(served)


def test_small_requests_share_a_step(engine, encoder, gate):
    encoder.before = gate
    blocker = engine.submit([ids(999)])
    assert gate.is_entered.wait(WAIT_S)

    futures = [engine.submit([ids(n)], Lane.QUERY) for n in range(10)]
    gate.open()
    for future in (blocker, *futures):
        future.result(WAIT_S)

    assert len(encoder.steps) == 2


def test_each_step_reports_how_many_sequences_are_done(engine):
    seen = []

    engine.submit(some(10), on_step=seen.append).result(WAIT_S)

    assert seen == [4, 8, 10]


def test_an_error_of_on_step_fails_that_request_and_no_other(engine):
    def lost(num_done):
        raise KeyError("lease lost")

    with pytest.raises(KeyError, match="lease lost"):
        engine.submit(some(3), on_step=lost).result(WAIT_S)

    assert len(engine.submit(some(3)).result(WAIT_S)) == 3


def test_no_inputs_give_no_vectors(engine):
    assert engine.submit([]).result(WAIT_S).shape == (0, 8)


def test_what_the_model_cannot_read_is_refused_before_it_is_queued(engine, encoder):
    with pytest.raises(InputTooLong, match="11 tokens, the model reads at most 10"):
        engine.submit([ids(*range(11))])
    with pytest.raises(InvalidInput, match="Input 1 has no tokens"):
        engine.submit([ids(1), ids()])
    with pytest.raises(InvalidInput, match="vocabulary of 1000"):
        engine.submit([ids(1000)])

    assert encoder.steps == []


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_vector_that_is_not_finite_or_zero_is_computed_again_in_fp32(engine, encoder, value):
    encoder.spoil = lambda sequence: value if sequence[0] == 3 else None
    sequences = some(6)

    vectors = engine.submit(sequences).result(WAIT_S)

    np.testing.assert_array_equal(vectors, vectors_of(sequences, 8))


def test_inputs_without_a_usable_vector_are_named_and_others_requests_go_on(engine, encoder, gate):
    encoder.before = gate
    encoder.spoil = lambda sequence: np.nan if sequence[0] in (2, 5) else None
    encoder.exact_value = np.inf
    blocker = engine.submit([ids(999)])
    assert gate.is_entered.wait(WAIT_S)

    spoilt, good = engine.submit([ids(n) for n in range(8)]), engine.submit([ids(9)])
    gate.open()

    with pytest.raises(InvalidVector, match="2, 5") as caught:
        spoilt.result(WAIT_S)
    assert caught.value.indices == (2, 5)
    assert len(good.result(WAIT_S)) == len(blocker.result(WAIT_S)) == 1


def test_an_error_reaches_only_the_request_that_caused_it(engine, encoder, gate):
    encoder.before = gate
    blocker = engine.submit([ids(999)])
    assert gate.is_entered.wait(WAIT_S)

    def refuse(step):
        if [666] in step:
            raise RuntimeError("cursed token")

    bad, good = engine.submit([ids(666), ids(1)], Lane.QUERY), engine.submit([ids(2), ids(3)], Lane.QUERY)
    encoder.before = refuse
    gate.open()

    with pytest.raises(RuntimeError, match="cursed token"):
        bad.result(WAIT_S)
    assert len(good.result(WAIT_S)) == 2
    assert len(blocker.result(WAIT_S)) == 1


def test_out_of_memory_halves_the_step_and_the_work_still_ends(engine, encoder):
    def refuse(step):
        if sum(map(len, step)) > 10:
            raise OutOfMemory

    encoder.before = refuse
    sequences = some(20)

    vectors = engine.submit(sequences).result(WAIT_S)

    np.testing.assert_array_equal(vectors, vectors_of(sequences, 8))
    assert sum(sum(map(len, step)) > 10 for step in encoder.steps) == 1


def test_one_sequence_that_does_not_fit_into_memory_fails_its_request_and_may_be_retried(engine, encoder):
    def refuse(step):
        if any(len(sequence) == 9 for sequence in step):
            raise OutOfMemory

    encoder.before = refuse

    with pytest.raises(OutOfMemory) as caught:
        engine.submit([*some(5), ids(*range(9))]).result(WAIT_S)

    assert caught.value.retryable
    assert len(engine.submit(some(5)).result(WAIT_S)) == 5


def test_a_cancelled_request_is_not_computed_any_further(engine, encoder, gate):
    encoder.before = gate
    future = engine.submit(some(400))
    assert gate.is_entered.wait(WAIT_S)

    assert future.cancel()
    gate.open()
    engine.submit([ids(1)]).result(WAIT_S)

    assert len(encoder.steps) == 2
    with pytest.raises(CancelledError):
        future.result(0)


def test_a_dead_engine_thread_fails_everything_at_once(engine, encoder, gate):
    def die(step):
        gate(step)
        raise SystemExit("lost the device")

    encoder.before = die
    futures = [engine.submit(some(10)), engine.submit(some(10)), engine.submit([ids(1)], Lane.QUERY)]
    gate.open()

    for future in futures:
        with pytest.raises(EngineDied, match="lost the device"):
            future.result(WAIT_S)
    assert not engine.is_alive
    with pytest.raises(EngineDied):
        engine.submit([ids(1)])


def test_close_fails_what_waits_and_ends_the_thread(engine, encoder, gate):
    encoder.before = gate
    running, waiting = engine.submit(some(10)), engine.submit(some(10))
    assert gate.is_entered.wait(WAIT_S)
    gate.open()

    engine.close()
    engine.close()

    for future in (running, waiting):
        assert future.done()
    with pytest.raises(EngineDied, match="closed"):
        waiting.result(0)
    assert not any(thread.name == "embedctl-engine" for thread in threading.enumerate())


def test_embed_gives_up_on_an_engine_that_finishes_no_step(encoder, gate):
    encoder.before = gate
    engine = Engine(dummy_spec(8), encoder, StepLimit(512, 512), EngineConfig(stall_s=0.05))

    with pytest.raises(EngineDied, match="finished no step"):
        engine.embed(["a"], "query")

    gate.open()
    engine.close()


def test_many_threads_get_their_own_vectors(engine):
    wrong = []

    def work(first):
        for n in range(20):
            sequences = some(5, first=first + n)
            if not np.array_equal(engine.submit(sequences).result(WAIT_S), vectors_of(sequences, 8)):
                wrong.append(first)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert wrong == []


def test_counters_add_up(engine):
    started = time.perf_counter()

    engine.submit(some(10)).result(WAIT_S)

    counters = engine.counters
    assert (counters.num_steps, counters.num_sequences, counters.num_tokens) == (3, 10, 50)
    assert counters.padding_waste == 0
    assert 0 < counters.engine_s <= time.perf_counter() - started


def test_a_step_budget_below_the_longest_input_is_refused_at_start():
    with pytest.raises(InvalidEngineConfig, match="use 512 or more"):
        step_limit(EngineConfig(max_step_tokens=100), max_tokens=512)

    assert step_limit(EngineConfig(), max_tokens=8192).max_tokens == 8192


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"device": "gpu"}, "device='gpu' is not one of auto, cpu, cuda"),
        ({"num_threads": 0}, "num_threads=0 is not a positive number"),
        ({"max_step_tokens": -1}, "max_step_tokens=-1 is not a positive number"),
        ({"stall_s": 0.0}, "stall_s=0.0 is not a positive number"),
    ],
)
def test_a_bad_setting_names_itself_and_what_is_allowed(setting, message):
    with pytest.raises(InvalidEngineConfig, match=message):
        EngineConfig(**setting)
