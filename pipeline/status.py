"""What `status` shows: every index with its collections, and the newest runs."""

from dataclasses import dataclass
from typing import Any

from embedctl.pipeline.ledger.collections import CollectionRow
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.ledger.totals import Totals
from embedctl.pipeline.owner import describe, is_known_dead
from embedctl.pipeline.report import report_run


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """One collection and the documents in it."""

    collection: CollectionRow
    totals: Totals

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.collection.index,
            "model": self.collection.version,
            "state": self.collection.state,
            "documents": self.totals.documents,
            "chunks": self.totals.chunks,
            "partial": self.totals.partial,
            "failures": self.totals.failures,
            "sources": list(self.totals.sources),
        }


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run; activity: what it is doing, in words."""

    run: Run
    activity: str
    backlog_tokens: int

    def to_json(self, ledger: Ledger) -> dict[str, Any]:
        return {
            **report_run(ledger, self.run).to_json(),
            "activity": self.activity,
            "backlog_tokens": self.backlog_tokens,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """A moment of the ledger."""

    collections: list[CollectionStatus]
    runs: list[RunStatus]


def read_status(ledger: Ledger, run_id: int | None = None, num_runs: int = 5) -> Status:
    """The state of all indexes and of the newest runs, or of one run. Reads the ledger only."""
    backlog = ledger.batches.backlog()
    now = ledger.now()
    if run_id is None:
        found = {run.id: run for run in (*ledger.runs.list(only_open=True), *ledger.runs.list(num_runs))}
        chosen = sorted(found.values(), key=lambda run: -run.id)
    else:
        chosen = [run for run in [ledger.runs.get(run_id)] if run is not None]
    return Status(
        collections=[CollectionStatus(row, ledger.totals.of(row)) for row in ledger.collections.list()],
        runs=[RunStatus(run, _activity(run, now), backlog.get(run.id, 0)) for run in chosen],
    )


def _activity(run: Run, now: float) -> str:
    if not run.is_open:
        return {"done": "done", "partial": "finished with failures", "cancelled": "cancelled"}[run.state]
    if run.reader_until == 0.0:
        return "stopped; the same `embedctl index` goes on with it"
    if run.reader_until < now or is_known_dead(run.reader):
        return f"stalled: {describe(run.reader)} is gone; the same `embedctl index` goes on with it"
    return "reading and embedding" if run.state == "open" else "embedding"
