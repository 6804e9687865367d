"""Claim, lease, fence, commit: what a batch promises whatever happens to its workers."""

import threading
import time
from collections import Counter

import pytest
from sqlalchemy import update

from embedctl.pipeline.document import Document
from embedctl.pipeline.ledger.batches import LeaseLost
from embedctl.pipeline.ledger.documents import Decision, NewBatch, Plan, Window
from embedctl.pipeline.ledger.runs import check_fence
from embedctl.pipeline.ledger.tables import documents
from embedctl.pipeline.owner import new_owner


def test_a_claim_counts_the_attempt_before_any_work(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))

    claim = bench.claim(run)

    assert (claim.attempt, claim.payload) == (1, b"a")
    assert bench.ledger.batches.claim("other", 60.0, [run.id]) is None


def test_the_last_commit_completes_a_first_generation_and_leaves_a_later_one_to_be_cleaned(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"), num_chunks=2, per_batch=1)
    bench.complete(run, bench.claim(run), 1)
    assert bench.state("a") == "open"
    bench.complete(run, bench.claim(run), 1)
    assert (bench.state("a"), bench.row("a").served) == ("complete", 1)

    bench.plan(run, bench.document("a", "two"))
    bench.complete(run, bench.claim(run), 2)

    assert (bench.state("a"), bench.row("a").served) == ("cleaning", 2)


def test_a_commit_without_the_lease_is_refused_and_counts_nothing(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"), num_chunks=2)
    zombie = bench.claim(run)
    bench.expire_leases()
    bench.ledger.maintenance.reap(zombie, run, [NewBatch(b"a", 2, 20)], ["a"], 30.0)
    second = bench.claim(run)

    with pytest.raises(LeaseLost):
        bench.complete(run, zombie, 1)
    with pytest.raises(LeaseLost):
        bench.ledger.batches.extend(zombie, 60.0)
    assert bench.row("a").chunks_left == 2

    bench.complete(run, second, 1)
    assert bench.state("a") == "complete"


def test_a_worker_whose_lease_ran_out_does_not_start_to_write(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    claim = bench.claim(run)
    assert bench.ledger.batches.current(claim, run, [("a", 1)]) == {("a", 1)}

    bench.expire_leases()

    with pytest.raises(LeaseLost):
        bench.ledger.batches.current(claim, run, [("a", 1)])


def test_a_superseded_document_is_not_written_and_not_counted_but_swept(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    old = bench.claim(run)
    bench.plan(run, bench.document("a", "two"))

    assert bench.ledger.batches.current(old, run, [("a", 1)]) == set()
    bench.complete(run, old, 1)

    row = bench.row("a")
    assert (row.state, row.generation, row.chunks_left) == ("open", 2, 1)
    assert bench.straggler_ids() == ["a"]


def test_a_dead_chunk_makes_its_document_partial_and_keeps_what_was_served(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    bench.plan(run, bench.document("a", "two"), num_chunks=3)

    bench.complete(run, bench.claim(run), 2, dead=(1,))

    row = bench.row("a")
    assert (row.state, row.served, row.chunks_dead, row.num_stored) == ("partial", 1, 1, 2)
    [failure] = bench.ledger.failures.list()
    assert (failure.doc_id, failure.ordinal, failure.stage) == ("a", 1, "embed")
    assert bench.ledger.maintenance.to_clean() == []


def test_planning_a_partial_document_again_clears_its_failure(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    bench.complete(run, bench.claim(run), 1, dead=(0,))

    bench.index(run, "a", "one")

    assert (bench.state("a"), bench.ledger.failures.list()) == ("complete", [])


def test_a_batch_given_back_consumes_nothing_and_waits_as_long_as_asked(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    claim = bench.claim(run)

    bench.ledger.batches.release(claim, run, 0.0, [], 0.0)
    again = bench.claim(run)
    bench.ledger.batches.release(again, run, 3600.0, ["a"], bench.ledger.now() + 30.0)

    assert again.id == claim.id
    assert bench.ledger.batches.claim("other", 60.0, [run.id]) is None
    assert bench.straggler_ids() == ["a"]


def test_a_lost_batch_comes_back_in_parts_and_nothing_of_it_is_dead(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"), num_chunks=4)
    for _ in range(2):
        bench.claim(run)
        bench.expire_leases()
        for lost in bench.ledger.maintenance.lost_batches():
            half = lost.num_chunks // 2
            pieces = [NewBatch(b"a", half, 10 * half), NewBatch(b"a", lost.num_chunks - half, 10 * half)]
            assert bench.ledger.maintenance.reap(lost, run, pieces, ["a"], 30.0)

    sizes = []
    while claim := bench.ledger.batches.claim("w", 60.0, [run.id]):
        sizes.append(claim.num_chunks)
        bench.complete(run, claim, 1)

    assert sorted(sizes) == [1, 1, 2]
    assert bench.state("a") == "complete"


def test_a_lease_that_was_kept_after_all_is_not_reaped(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    claim = bench.claim(run)
    bench.expire_leases()
    [lost] = bench.ledger.maintenance.lost_batches()
    bench.ledger.batches.extend(claim, 60.0)

    assert not bench.ledger.maintenance.reap(lost, run, [NewBatch(b"a", 1, 10)], ["a"], 30.0)

    bench.complete(run, claim, 1)
    assert (bench.state("a"), bench.straggler_ids()) == ("complete", [])


def test_a_batch_of_a_process_known_to_be_dead_is_lost_before_its_lease_ends(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    host, _, _, _ = new_owner().rsplit("|", 3)
    bench.claim(run, owner=f"{host}|999999999|1.00|abcdef12")

    assert len(bench.ledger.maintenance.lost_batches()) == 1


def test_a_batch_of_a_living_process_is_not_lost_while_its_lease_holds(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    bench.claim(run, owner=new_owner())

    assert bench.ledger.maintenance.lost_batches() == []


def test_many_workers_claim_every_batch_once_and_count_every_chunk(bench):
    run = bench.open_run()
    documents = [bench.document(f"d{number}", "text", observation=1) for number in range(60)]
    plans = [Plan(document, Decision.EMBED, 1, 3) for document in documents]
    new = [NewBatch(document.doc_id.encode(), 1, 10) for document in documents for _ in range(3)]
    bench.ledger.documents.write(run, Window(plans=plans, batches=new))
    claimed: Counter[int] = Counter()

    def work(number: int) -> None:
        while claim := bench.ledger.batches.claim(f"w{number}", 60.0, [run.id]):
            claimed[claim.id] += 1
            bench.complete(run, claim, 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(claimed) == 180
    assert set(claimed.values()) == {1}
    assert {bench.state(document.doc_id) for document in documents} == {"complete"}
    assert bench.ledger.runs.get(run.id).chunks_embedded == 180


def test_a_commit_and_a_plan_of_the_same_documents_never_wait_for_each_other(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    claim = bench.claim(run)
    errors = []

    def commit():
        try:
            bench.complete(run, claim, 1)
        except Exception as exc:
            errors.append(exc)

    thread = threading.Thread(target=commit)
    with bench.ledger.db.write() as connection:  # as a plan does: first its run, then its documents
        check_fence(connection, run)
        thread.start()
        time.sleep(0.3)
        connection.execute(update(documents).values(position=7))
    thread.join()

    assert errors == []
    assert bench.state("a") == "complete"


def test_text_that_databases_dislike_survives_both(bench):
    run = bench.open_run()
    doc_id = "naïve/會議室 👩‍👩‍👧 \u202etxt"
    document = Document(doc_id, 0, bench.ledger.draw_observation(), "text \ufffd", "text/1", {"t": "\u2028"})

    bench.plan(run, document)

    assert bench.state(doc_id) == "open"
