"""Runs: one at a time per source and collection, resumable, with counts that add up and a guarded prune."""

from pathlib import Path

import pytest

from embedctl.pipeline.errors import RunBusy, SourceConflict, UnknownVersion, VersionConflict
from embedctl.pipeline.ledger.collections import NothingLive
from embedctl.pipeline.ledger.documents import Window
from embedctl.pipeline.ledger.versions import Version
from embedctl.pipeline.owner import new_owner


def test_a_second_reader_is_refused_while_the_first_one_lives(bench):
    bench.open_run(owner=new_owner())

    with pytest.raises(RunBusy, match="process"):
        bench.open_run()


def test_a_run_whose_reader_is_gone_is_taken_over_with_a_new_enumeration(bench):
    host, _, _, _ = new_owner().rsplit("|", 3)
    first = bench.open_run(owner=f"{host}|999999999|1.00|abcdef12")

    second, was_resumed = bench.ledger.runs.open("docs__v1", "notes", bench.owner, 60.0)

    assert was_resumed
    assert second.id == first.id
    assert second.scan > first.scan


def test_documents_that_vanished_are_tombstoned_at_their_next_generation(bench):
    run = bench.open_run()
    for name in "abcdef":
        bench.index(run, name, f"text {name}")
    run = _reopened(bench, run)
    bench.ledger.documents.write(
        run, Window(skips=[bench.document(name, f"text {name}") for name in "abcde"])
    )

    assert bench.ledger.runs.finish_enumeration(run, 0.2) == 0

    row = bench.row("f")
    assert (row.state, row.generation, row.served) == ("pruning", 2, 2)
    bench.clean()
    assert bench.state("f") == "gone"
    assert bench.ledger.runs.get(run.id).pruned == 1


@pytest.mark.parametrize(
    ("num_kept", "max_prune", "is_refused"),
    [(3, 0.2, True), (4, 0.2, False), (0, 0.2, True), (0, 1.0, False)],
)
def test_more_than_the_allowed_share_is_not_pruned(bench, num_kept, max_prune, is_refused):
    run = bench.open_run()
    names = "abcde"
    for name in names:
        bench.index(run, name, name)
    run = _reopened(bench, run)
    kept = [bench.document(name, name) for name in names[:num_kept]]
    bench.ledger.documents.write(run, Window(skips=kept))

    refused = bench.ledger.runs.finish_enumeration(run, max_prune)

    assert refused == (len(names) - num_kept if is_refused else 0)
    assert bench.state("e") == ("complete" if is_refused else "pruning")


def test_a_prune_never_touches_what_was_observed_after_its_listing_began(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    run = _reopened(bench, run)
    # another process saw the document after this enumeration began
    with bench.ledger.db.write() as connection:
        from embedctl.pipeline.ledger.tables import documents

        connection.execute(documents.update().values(observation=run.scan + 1))

    bench.ledger.runs.finish_enumeration(run, 1.0)

    assert bench.state("a") == "complete"


def test_a_run_closes_only_when_nothing_is_left_and_makes_the_first_collection_live(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    bench.ledger.runs.finish_enumeration(run, 0.2)
    assert bench.ledger.maintenance.closable_runs() == []
    with pytest.raises(NothingLive, match="still being built"):
        bench.ledger.collections.live("docs")

    bench.complete(run, bench.claim(run), 1)
    assert bench.ledger.maintenance.closable_runs() == [run.id]
    assert bench.ledger.maintenance.close(bench.ledger.runs.get(run.id), 0)

    assert bench.ledger.runs.get(run.id).state == "done"
    assert bench.ledger.collections.live("docs").version == "v1"


def test_a_run_that_was_taken_over_while_it_was_being_closed_keeps_its_new_work(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    bench.ledger.runs.finish_enumeration(run, 0.2)
    assert bench.ledger.maintenance.closable_runs() == [run.id]
    second = _reopened(bench, run)
    seen_by_tick = bench.ledger.runs.get(run.id)
    bench.plan(second, bench.document("a", "two"))
    bench.ledger.runs.finish_enumeration(second, 0.2)

    bench.ledger.maintenance.close(seen_by_tick, 0)

    assert bench.ledger.runs.get(run.id).state == "enumerated"
    bench.complete(second, bench.claim(second), 2)


def test_a_run_with_failures_closes_as_partial(bench):
    run = bench.open_run()
    bench.plan(run, bench.document("a", "one"))
    bench.complete(run, bench.claim(run), 1, dead=(0,))
    bench.ledger.runs.finish_enumeration(run, 0.2)

    bench.ledger.maintenance.close(bench.ledger.runs.get(run.id), 0)

    assert bench.ledger.runs.get(run.id).state == "partial"


def test_documents_that_a_killed_run_had_planned_are_not_counted_as_unchanged(bench):
    run = bench.open_run()
    bench.index(run, "a", "one")
    run = _reopened(bench, run)

    bench.ledger.documents.write(run, Window(skips=[bench.document("a", "one")]))

    run = bench.ledger.runs.get(run.id)
    assert (run.seen, run.unchanged, bench.ledger.runs.planned(run).embedded) == (1, 0, 1)


def test_a_label_is_bound_once_to_one_space_and_chunking(bench):
    version = bench.ledger.versions.get("v1")
    assert bench.ledger.versions.bind(version) == version

    with pytest.raises(VersionConflict, match="can never come to mean another"):
        bench.ledger.versions.bind(Version("v1", "cd" * 8, version.space, version.chunking, "x", {}))
    with pytest.raises(VersionConflict):
        bench.ledger.versions.bind(
            Version("v1", version.space_id, version.space, {"strategy": "tokens"}, "x", {})
        )
    with pytest.raises(UnknownVersion, match="models add v9"):
        bench.ledger.versions.get("v9")


def test_a_source_label_is_bound_to_its_path_until_it_is_told_that_it_moved(bench, tmp_path):
    bench.ledger.sources.bind("docs", "notes", tmp_path / "notes")
    bench.ledger.sources.bind("docs", "notes", tmp_path / "notes")

    with pytest.raises(SourceConflict, match="--source NAME"):
        bench.ledger.sources.bind("docs", "notes", Path("/elsewhere/notes"))

    moved = bench.ledger.sources.bind("docs", "notes", Path("/elsewhere/notes"), rebind=True)
    assert moved.path == Path("/elsewhere/notes")
    assert [row.path for row in bench.ledger.sources.list("docs")] == [Path("/elsewhere/notes")]


def test_a_ledger_keeps_its_id(bench, ledger_url):
    from embedctl.pipeline.ledger.ledger import Ledger

    again = Ledger(ledger_url)
    assert again.id == bench.ledger.id
    again.close()


def _reopened(bench, run):
    bench.ledger.runs.leave(run, 0.0)
    return bench.open_run()
