"""What goes wrong in the middle of a run: one line about the one thing, everything else done, nothing
lost."""

import shutil
import uuid

import numpy as np
import pytest
from rehearsal import DIM, Record, Rehearsal, add_up, paragraphs

from embedctl.engine.errors import EngineDied, InvalidVector, OutOfMemory
from embedctl.engine.spec import dummy_spec
from embedctl.engine.tokenizer import load_tokenizer
from embedctl.pipeline import batch, indexing
from embedctl.pipeline.errors import DiskFull, ForeignCollection, SourceError, StoreError, StoreUnavailable
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.stores.base import DocumentLimit, Points
from embedctl.pipeline.stores.edge import EdgeStore

BAD = "unbearable text"
RECORDS = [Record(f"{number:02}.txt", f"good text number {number}") for number in range(99)]


def raises_on(text, error):
    """A fault of the engine for exactly this input."""
    [wanted] = load_tokenizer(dummy_spec(DIM)).encode_inputs([text])
    return lambda ids: error if np.array_equal(ids, wanted.token_ids) else None


class StoreWith(EdgeStore):
    """The real store, with an upsert that a test may spoil."""

    def __init__(self, rehearsal, spoil):
        super().__init__(rehearsal.folder / ".embedctl" / "store")
        self._spoil = spoil

    def upsert(self, collection, points, deadline=None):
        self._spoil(points)
        super().upsert(collection, points, deadline)


@pytest.mark.parametrize("error", [RuntimeError("index out of range"), ValueError("no"), InvalidVector()])
def test_a_chunk_that_always_raises_dies_alone_and_the_rest_is_indexed(rehearsal, error):
    records = [*RECORDS, Record("bad.txt", BAD)]

    done = rehearsal.index(records, fault=raises_on(BAD, error))

    assert (done.report.exit_code, done.documents["failed"], done.documents["embedded"]) == (3, 1, 99)
    assert add_up(done.documents)
    assert len(rehearsal.points()) == 99
    with rehearsal.session() as session:
        [failure] = session.ledger.failures.list()
        assert session.ledger.runs.get(done.report.run.id).state == "partial"
    assert (failure.doc_id, failure.ordinal, failure.stage) == ("bad.txt", 0, "embed")
    assert "\n" not in failure.reason


def test_the_next_run_embeds_exactly_what_failed(rehearsal):
    records = [*RECORDS, Record("bad.txt", BAD)]
    rehearsal.index(records, fault=raises_on(BAD, RuntimeError("once")))

    done = rehearsal.index(records)

    assert done.engine.counters.num_sequences == 1
    assert (done.report.exit_code, done.documents["embedded"], done.documents["unchanged"]) == (0, 1, 99)
    assert len(rehearsal.points()) == 100
    with rehearsal.session() as session:
        assert session.ledger.failures.list() == []


def test_a_document_with_a_dead_chunk_keeps_its_older_generation_searchable(rehearsal):
    rehearsal.index([Record("a.txt", "the old text")])

    rehearsal.index([Record("a.txt", BAD)], fault=raises_on(BAD, RuntimeError("no")))

    assert rehearsal.texts("a.txt") == ["the old text"]
    rehearsal.index([Record("a.txt", BAD)])
    assert rehearsal.texts("a.txt") == [BAD]


def test_a_store_that_fails_once_costs_a_second_try_and_nothing_else(home):
    rehearsal = Rehearsal(home, request_timeout_s="1")  # the run closes when the first try must be over
    spoiled = []

    def spoil(points):
        if not spoiled:
            spoiled.append(len(points))
            raise StoreUnavailable("The store does not answer.")

    done = rehearsal.index(RECORDS, store=StoreWith(rehearsal, spoil))

    assert spoiled
    assert (done.report.exit_code, done.documents["embedded"]) == (0, 99)
    assert len(rehearsal.points()) == 99


def test_an_engine_out_of_memory_once_costs_a_second_try(rehearsal):
    raised = []

    def fault(ids):
        if not raised:
            raised.append(1)
            return OutOfMemory()
        return None

    done = rehearsal.index(RECORDS, fault=fault)

    assert (done.report.exit_code, done.documents["embedded"]) == (0, 99)


def test_a_point_that_the_store_refuses_dies_alone(rehearsal):
    def spoil(points):
        if any(payload["text"] == BAD for payload in points.payloads):
            raise StoreError("The payload is too large.")

    done = rehearsal.index([*RECORDS, Record("bad.txt", BAD)], store=StoreWith(rehearsal, spoil))

    assert (done.report.exit_code, done.documents["failed"]) == (3, 1)
    assert len(rehearsal.points()) == 99
    with rehearsal.session() as session:
        [failure] = session.ledger.failures.list()
    assert (failure.doc_id, failure.stage, failure.reason) == (
        "bad.txt",
        "store",
        "The payload is too large.",
    )


@pytest.mark.parametrize("error", [DiskFull(), EngineDied()])
def test_what_ends_the_run_is_one_error_and_the_next_run_completes_it(home, error):
    rehearsal = Rehearsal(home, request_timeout_s="1")

    def spoil(points):
        if isinstance(error, DiskFull):
            raise error

    fault = (lambda ids: error) if isinstance(error, EngineDied) else None
    with pytest.raises(type(error)):
        rehearsal.index(RECORDS, store=StoreWith(rehearsal, spoil), fault=fault)

    done = rehearsal.index(RECORDS)

    assert done.report.was_resumed
    assert (done.report.exit_code, done.documents["embedded"]) == (0, 99)
    assert len(rehearsal.points()) == 99


def test_points_that_the_store_lost_are_found_by_the_next_run_and_embedded_by_the_one_after(rehearsal):
    rehearsal.index(RECORDS)
    with rehearsal.session() as session:
        collection = session.catalog.collection("docs__v1")
        session.store.delete_older(collection, [DocumentLimit("notes", "00.txt", 99)])

    found = rehearsal.index(RECORDS)
    with rehearsal.session() as session:
        [failure] = session.ledger.failures.list()
    healed = rehearsal.index(RECORDS)

    assert (found.report.exit_code, found.report.run.state) == (3, "partial")
    assert (failure.doc_id, failure.stage) == ("00.txt", "store")
    assert (healed.report.exit_code, healed.documents["embedded"], len(rehearsal.points())) == (0, 1, 99)


def test_a_store_that_was_deleted_is_filled_again_without_the_engine(rehearsal):
    rehearsal.index(RECORDS)
    shutil.rmtree(rehearsal.folder / ".embedctl" / "store")

    rehearsal.index(RECORDS)
    healed = rehearsal.index(RECORDS)

    assert (healed.report.exit_code, healed.num_engine_calls) == (0, 0)
    assert len(rehearsal.points()) == 99


def test_points_that_no_document_has_are_reported_as_too_many(rehearsal):
    rehearsal.index(RECORDS[:2])
    with rehearsal.session() as session:
        collection = session.catalog.collection("docs__v1")
        payload = {**rehearsal_payload(session, collection), "doc_id": "stranger"}
        points = Points([str(uuid.uuid4())], np.ones((1, DIM), np.float32), [payload])
        session.store.upsert(collection, points)

    done = rehearsal.index(RECORDS[:2])

    assert (done.report.exit_code, done.report.run.store_surplus) == (1, 1)


def rehearsal_payload(session, collection):
    """The payload of some point of the collection."""
    return dict(session.store.search(collection, np.ones(DIM, np.float32), 1)[0].payload)


def test_a_source_that_breaks_off_keeps_what_was_read_and_prunes_nothing(rehearsal):
    rehearsal.index(RECORDS)

    def break_off(item):
        if item.doc_id == "09.txt":
            raise SourceError("The file is cut off.")

    done = rehearsal.index([Record("00.txt", "a new text"), *RECORDS[1:]], on_read=break_off)

    assert (done.report.exit_code, done.documents["seen"], done.documents["embedded"]) == (3, 11, 1)
    assert add_up(done.documents)
    assert len(rehearsal.points()) == 99
    with rehearsal.session() as session:
        [failure] = session.ledger.failures.list()
    assert (failure.doc_id, failure.stage, failure.reason) == ("notes", "source", "The file is cut off.")
    assert rehearsal.index(RECORDS).report.exit_code == 0


def test_a_foreign_space_is_refused_at_equal_dimension_before_anything_is_written(rehearsal, tmp_path):
    rehearsal.index(RECORDS[:3])
    other = Rehearsal(tmp_path / "other")

    with pytest.raises(ForeignCollection, match="ledger"):
        other.index(RECORDS[:3], store=EdgeStore(rehearsal.folder / ".embedctl" / "store"))

    assert len(rehearsal.points()) == 3


def test_readers_stop_while_too_much_is_ready(home):
    """Slow engine, quick reader: what waits stays near the limit, however many documents there are."""
    rehearsal = Rehearsal(home, batch_tokens="256", ready_tokens="1024", workers="1")
    ledger = Ledger(f"sqlite:///{home / '.embedctl' / 'ledger.db'}")
    most = []

    def look(item):
        if len(most) % 100 == 0:
            most.append(sum(ledger.batches.backlog().values()))
        else:
            most.append(0)

    records = [Record(f"{i}.txt", paragraphs(1, f"{i:05}")) for i in range(3000)]
    rehearsal.index(records, delay_s=0.01, on_read=look)

    ledger.close()
    window = 512 * 35
    assert 0 < max(most) <= 1024 + window


def test_an_engine_that_never_has_enough_memory_ends_the_command_at_last(rehearsal, monkeypatch):
    monkeypatch.setattr(indexing, "PATIENCE_S", 1.0)
    monkeypatch.setattr(batch, "RETRY_WAIT_S", 0.1)

    with pytest.raises(OutOfMemory):
        rehearsal.index(RECORDS[:3], fault=lambda ids: OutOfMemory())

    assert rehearsal.index(RECORDS[:3]).report.exit_code == 0
