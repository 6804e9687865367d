"""What an observation of a document calls for, and what the planning transaction promises."""

from dataclasses import replace

import pytest

from embedctl.pipeline.document import Document, Unreadable
from embedctl.pipeline.errors import RunLost
from embedctl.pipeline.ledger.documents import (
    Decision,
    DocumentRow,
    NewBatch,
    Plan,
    Window,
    WindowOutdated,
    decide,
)

DOCUMENT = Document("a.txt", position=5, observation=10, text="old text", reader="text/1")
ROW = DocumentRow(
    doc_id="a.txt",
    state="complete",
    generation=3,
    served=3,
    observation=9,
    enumeration=1,
    position=5,
    input_hash=DOCUMENT.input_hash,
    payload_hash=DOCUMENT.payload_hash,
    num_chunks=2,
    chunks_left=0,
    chunks_dead=0,
    run_id=1,
)
CHANGED = replace(DOCUMENT, text="new text")
RETAGGED = replace(DOCUMENT, metadata={"tag": "new"})


@pytest.mark.parametrize(
    ("row", "document", "decision"),
    [
        (None, DOCUMENT, Decision.EMBED),
        (None, replace(DOCUMENT, text=" \n\t\ufeff\u200b"), Decision.EMPTY),
        (ROW, DOCUMENT, Decision.SKIP),
        (ROW, CHANGED, Decision.EMBED),
        (ROW, RETAGGED, Decision.PAYLOAD),
        (ROW, replace(DOCUMENT, text=""), Decision.EMPTY),
        # planned at this content already, by this run or one that was killed: adopted
        (replace(ROW, state="open"), DOCUMENT, Decision.SKIP),
        (replace(ROW, state="cleaning"), DOCUMENT, Decision.SKIP),
        # not searchable as it should be: planned again
        (replace(ROW, state="partial"), DOCUMENT, Decision.EMBED),
        (replace(ROW, state="gone", input_hash="", payload_hash=""), DOCUMENT, Decision.EMBED),
        (replace(ROW, state="pruning", input_hash="", payload_hash=""), DOCUMENT, Decision.EMBED),
        # its vectors are not all there yet, so they cannot be taken over
        (replace(ROW, state="open"), RETAGGED, Decision.EMBED),
        # read before what the row knows
        (replace(ROW, observation=11), CHANGED, Decision.STALE),
        (replace(ROW, observation=11), DOCUMENT, Decision.SKIP),
        # the same id twice in this enumeration (its number is 2): the lower position wins
        (replace(ROW, enumeration=2, position=4), CHANGED, Decision.DUPLICATE),
        (replace(ROW, enumeration=2, position=4), DOCUMENT, Decision.DUPLICATE),
        (replace(ROW, enumeration=2, position=6), CHANGED, Decision.EMBED),
        (replace(ROW, enumeration=1, position=4), CHANGED, Decision.EMBED),
    ],
)
def test_an_observation_is_compared_with_the_row(row, document, decision):
    assert decide(row, document, scan=2) is decision


def test_a_plan_takes_the_next_generation_and_queues_its_batches(bench):
    run = bench.open_run()

    bench.plan(run, bench.document("a", "one"), num_chunks=5, per_batch=2)

    row = bench.row("a")
    assert (row.state, row.generation, row.served, row.chunks_left) == ("open", 1, 0, 5)
    assert bench.num_batches() == 3
    assert bench.ledger.batches.num_tokens([run.id]) == 50


def test_a_generation_is_never_given_out_twice_also_after_a_removal(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    bench.ledger.runs.finish_enumeration(run, 1.0)
    run = bench.open_run(owner=bench.owner) if not run.is_open else _reopened(bench, run)
    bench.ledger.runs.finish_enumeration(run, 1.0)
    assert bench.row("a").generation == 2

    run = _reopened(bench, run)
    bench.index(run, "a", "one")

    assert bench.row("a").generation == 3


def test_a_document_without_chunks_is_complete_at_once_and_its_older_points_are_cleaned(bench):
    run = bench.open_run()
    empty = Plan(bench.document("a", " "), Decision.EMPTY, 1, 0)
    bench.ledger.documents.write(run, Window(plans=[empty]))
    assert bench.state("a") == "complete"

    bench.index(run, "b", "some text")
    emptied = Plan(bench.document("b", ""), Decision.EMPTY, 2, 0)
    bench.ledger.documents.write(run, Window(plans=[emptied]))

    assert bench.state("b") == "cleaning"
    assert [(item.doc_id, item.generation) for item in bench.ledger.maintenance.to_clean()] == [("b", 2)]


def test_a_reader_that_lost_its_run_writes_nothing(bench):
    run = bench.open_run(owner="gone")
    document = bench.document("a", "one")
    _reopened(bench, run)

    with pytest.raises(RunLost):
        bench.plan(run, document)
    with pytest.raises(RunLost):
        bench.ledger.runs.finish_enumeration(run, 1.0)
    with pytest.raises(RunLost):
        bench.ledger.runs.beat(run, 60.0, 1.0)

    assert bench.row("a") is None
    assert bench.num_batches() == 0


def test_a_window_decided_on_rows_that_changed_since_is_refused_whole(bench):
    run = bench.open_run()
    document = bench.document("a", "two")
    window = Window(plans=[Plan(document, Decision.EMBED, 1, 1)], batches=[NewBatch(b"a", 1, 10)])
    bench.plan(run, bench.document("a", "one"))

    with pytest.raises(WindowOutdated):
        bench.ledger.documents.write(run, window)

    assert bench.row("a").generation == 1
    assert bench.num_batches() == 1


def test_a_skip_records_its_observation_so_that_an_older_one_cannot_undo_it(bench):
    run = bench.open_run()
    older = bench.document("a", "older text")
    bench.index(run, "a", "one")
    newer = bench.document("a", "one")

    bench.ledger.documents.write(run, Window(skips=[newer]))

    row = bench.row("a")
    assert row.observation == newer.observation
    assert decide(row, older, run.scan + 1) is Decision.STALE


def test_an_unreadable_document_counts_as_seen_and_is_listed_until_it_is_read(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    bench.index(run, "folder/b", "two")
    run = _reopened(bench, run)
    unreadable = [Unreadable("a", 0, "permission denied"), Unreadable("folder/", 1, "permission denied")]

    bench.ledger.documents.write(run, Window(unreadable=unreadable))
    bench.ledger.runs.finish_enumeration(run, 1.0)

    assert (bench.state("a"), bench.state("folder/b")) == ("complete", "complete")
    assert [item.doc_id for item in bench.ledger.failures.list()] == ["a", "folder/"]

    run = _reopened(bench, run)
    bench.ledger.documents.write(
        run, Window(skips=[bench.document("a", "one"), bench.document("folder/b", "two")])
    )
    bench.ledger.runs.finish_enumeration(run, 1.0)
    assert bench.ledger.failures.list() == []


def test_the_same_failure_again_counts_its_attempts(bench):
    run = bench.open_run()
    for _ in range(3):
        bench.ledger.documents.write(run, Window(unreadable=[Unreadable("a", 0, "permission denied")]))

    [failure] = bench.ledger.failures.list()
    assert (failure.attempts, failure.stage, failure.reason) == (3, "read", "permission denied")


def test_planning_moves_the_collections_epoch_and_skipping_does_not(bench):
    run = bench.open_run()
    before = bench.ledger.collections.find("docs__v1").epoch
    bench.index(run, "a", "one")
    planned = bench.ledger.collections.find("docs__v1").epoch
    bench.ledger.documents.write(run, Window(skips=[bench.document("a", "one")]))

    assert before < planned == bench.ledger.collections.find("docs__v1").epoch


def _reopened(bench, run):
    """The next reader of the same run, after the first one's lease ended."""
    bench.ledger.runs.leave(run, 0.0)
    return bench.open_run()
