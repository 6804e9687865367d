"""What a run's counts mean for the exit code, and how durations and progress are put."""

from dataclasses import replace

import pytest

from embedctl.pipeline.commands.display import advice, duration, progress_line
from embedctl.pipeline.ledger.runs import PlannedCounts, Run
from embedctl.pipeline.owner import describe, is_known_dead, new_owner
from embedctl.pipeline.report import Progress, RunReport, worst_exit_code

RUN = Run(
    id=7, collection="docs__v1", source="notes", state="done", scan=1, reader="", reader_until=0.0,
    opened_at=0.0,
    closed_at=1.0, busy_s=1.0, seen=10, unchanged=10, duplicates=0, unreadable=0, pruned=0, not_pruned=0,
    chunks_embedded=0, chunks_reused=0, chunks_deleted=0, chunks_truncated=0, tokens=0, store_surplus=0,
)  # fmt: skip


def report(**changes):
    return RunReport("docs", "v1", replace(RUN, **changes), PlannedCounts())


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({}, 0, None),
        ({"state": "partial", "unreadable": 2}, 3, "embedctl failed ls"),
        ({"not_pruned": 5}, 4, "--max-prune 1"),
        ({"not_pruned": 5, "state": "partial"}, 4, "--max-prune 1"),
        ({"store_surplus": -3}, 1, "3 points fewer"),
        ({"store_surplus": 2, "not_pruned": 1}, 1, "2 points more"),
    ],
)
def test_a_runs_exit_code_says_how_it_ended(changes, code, says):
    made = report(**changes)

    assert made.exit_code == code
    assert says is None or any(says in line for line in advice(made))


def test_several_runs_exit_with_the_worst_of_them():
    runs = [report(), report(state="partial"), report(not_pruned=1)]

    assert worst_exit_code(runs) == 4
    assert worst_exit_code([*runs, report(store_surplus=1)]) == 1
    assert worst_exit_code([]) == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (65, "1 min 05 s"), (7800, "2 h 10 min")]
)
def test_durations_are_put_for_people(seconds, text):
    assert duration(seconds) == text


def test_progress_says_what_is_known_and_that_reading_goes_on():
    progress = Progress("docs", "v1", replace(RUN, state="open", chunks_embedded=1234), 5000, 1000.0)

    line = progress_line(progress)

    assert "1,234 chunks" in line
    assert "5 s left and what is still to be read" in line


def test_a_living_owner_is_not_dead_and_a_gone_one_is():
    owner = new_owner()
    host, pid, _, _ = owner.rsplit("|", 3)

    assert not is_known_dead(owner)
    assert is_known_dead(f"{host}|{pid}|1.00|abcdef12"), "the process id is another process by now"
    assert is_known_dead(f"{host}|999999999|1.00|abcdef12")
    assert not is_known_dead("another-host|1|1.00|abcdef12"), "nobody here can know"
    assert not is_known_dead("")
    assert describe(owner).startswith(f"process {pid} on ")
