"""One claimed batch against an engine, a store and a ledger that misbehave: whose fault is what."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rehearsal import DIM, Record, RecordSource, Rehearsal, paragraphs

from embedctl.engine.counters import EngineCounters
from embedctl.engine.dummy import vectors_of
from embedctl.pipeline.batch import Worker, embed_batch
from embedctl.pipeline.cache import NoCache
from embedctl.pipeline.errors import DiskFull
from embedctl.pipeline.ledger.batches import ClaimedBatch
from embedctl.pipeline.planner import Planner
from embedctl.pipeline.session import Session
from embedctl.pipeline.sharing import SharedVectors
from embedctl.pipeline.version import open_version


class ScriptedEngine:
    """Answers every request when `answer` says so, from another thread."""

    def __init__(self, answer: Any) -> None:
        self.counters = EngineCounters()
        self.num_requests = 0
        self._answer = answer

    def submit(self, token_ids, *, num_prompt_tokens=None, on_step=None):
        self.num_requests += 1
        return self._answer(self, vectors_of(token_ids, DIM))

    def count_step(self) -> None:
        self.counters = self.counters.plus_step(1, 1, 1, 0.0)


class DoneAsTheWaitEnds(Future):
    """Its answer comes in the moment in which a wait for it gives up."""

    def __init__(self, vectors) -> None:
        super().__init__()
        self._vectors = vectors
        # for who waits without asking for the result
        threading.Timer(0.3, answer_unless_cancelled, [self, vectors]).start()

    def result(self, timeout=None):
        try:
            return super().result(timeout)
        except TimeoutError:
            answer_unless_cancelled(self, self._vectors)
            raise


def answer_unless_cancelled(future: Future, vectors: Any) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_result(vectors)


@dataclass
class Desk:
    """A run with one document planned, and a worker for it."""

    session: Session
    worker: Worker

    def claim(self, lease_s: float = 60.0) -> ClaimedBatch:
        claim = self.session.ledger.batches.claim(self.session.owner, lease_s, [self.worker.run.id])
        assert claim is not None
        return claim

    def with_engine(self, engine: ScriptedEngine, **changes: Any) -> Worker:
        return replace(self.worker, engine=lambda: engine, **changes)

    def state(self) -> str:
        return self.session.ledger.documents.rows("docs__v1", "notes", ["a.txt"])["a.txt"].state


@pytest.fixture
def desk(rehearsal: Rehearsal) -> Iterator[Desk]:
    with rehearsal.session() as session:
        opened = open_version(session, "v1")
        row = session.ledger.collections.ensure("docs", "v1")
        collection = session.catalog.describe(row)
        session.store.create_collection(collection)
        run, _ = session.ledger.runs.open(row.name, "notes", session.owner, 60.0)
        planner = Planner(
            session.ledger,
            run,
            lambda: opened.chunker,
            batch_tokens=10_000,
            on_queued=lambda window: None,
            wait_for_room=lambda: None,
            should_stop=lambda: False,
        )
        planner.plan_source(RecordSource([Record("a.txt", paragraphs(1))]))
        yield Desk(
            session,
            Worker(
                ledger=session.ledger,
                run=run,
                collection=collection,
                store=session.store,
                cache=NoCache(),
                shared=SharedVectors(),
                engine=opened.engine,
                should_stop=lambda: False,
                lease_s=60.0,
                request_timeout_s=5.0,
            ),
        )


def test_an_answer_in_the_very_moment_a_wait_ends_is_taken_and_no_chunk_dies_of_it(desk):
    engine = ScriptedEngine(lambda engine, vectors: DoneAsTheWaitEnds(vectors))

    embed_batch(desk.with_engine(engine), desk.claim())

    assert (engine.num_requests, desk.state()) == (1, "complete")


def test_a_batch_that_waits_behind_the_steps_of_others_keeps_its_lease(desk):
    def answer(engine, vectors):
        future = Future()

        def work_for_others():
            for _ in range(10):
                engine.count_step()
                threading.Event().wait(0.2)
            answer_unless_cancelled(future, vectors)

        threading.Thread(target=work_for_others).start()
        return future

    embed_batch(desk.with_engine(ScriptedEngine(answer), lease_s=1.0), desk.claim(lease_s=1.0))

    assert desk.state() == "complete"


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_wedged_engine_loses_the_lease_of_whoever_waits_for_it(desk, is_shared):
    claim = desk.claim(lease_s=0.5)
    stopped = threading.Event()
    engine = ScriptedEngine(lambda engine, vectors: Future())
    worker = desk.with_engine(engine, lease_s=0.5, should_stop=stopped.is_set)
    if is_shared:  # another thread has asked the engine for the same input already
        from embedctl.pipeline.payload import decode_chunks

        worker.shared.claim([chunk.input_hash for chunk in decode_chunks(claim.payload)])
    thread = threading.Thread(target=embed_batch, args=(worker, claim))
    thread.start()

    threading.Event().wait(1.2)
    lost = desk.session.ledger.maintenance.lost_batches()
    stopped.set()
    thread.join()

    assert [batch.id for batch in lost] == [claim.id]


def test_a_ledger_that_cannot_keep_a_lease_is_no_fault_of_the_chunks(desk, monkeypatch):
    def answer(engine, vectors):
        future = Future()
        engine.count_step()
        threading.Timer(0.6, answer_unless_cancelled, [future, vectors]).start()
        return future

    def full(batch, lease_s):
        raise DiskFull

    claim = desk.claim()
    monkeypatch.setattr(desk.session.ledger.batches, "extend", full)

    with pytest.raises(DiskFull):
        embed_batch(desk.with_engine(ScriptedEngine(answer), lease_s=0.4), claim)

    assert desk.session.ledger.failures.list() == []
    assert desk.state() == "open"


def test_a_process_paused_between_its_last_look_and_its_write_writes_nothing_when_it_goes_on(desk):
    """Its lease has run out meanwhile; what another attempt has written for a newer text stays alone."""
    claim = desk.claim()
    look = desk.session.ledger.batches.current

    def pause_afterwards(claimed, run, keys):
        found = look(claimed, run, keys)
        threading.Event().wait(0.5)
        return found

    desk.session.ledger.batches.current = pause_afterwards
    embed_batch(replace(desk.worker, request_timeout_s=0.4), claim)

    assert desk.session.store.count(desk.worker.collection) == 0
    assert desk.state() == "open"
