"""What a run did, in the keys that scripts rely on, and how far a running one has got."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.runs import PlannedCounts, Run

#: Exit codes of the command line.
DONE, ERROR, WITH_FAILURES, REFUSED = 0, 1, 3, 4


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run and the counts of its documents, which add up to those seen."""

    index: str
    model: str
    run: Run
    planned: PlannedCounts
    was_resumed: bool = False

    @property
    def num_failed(self) -> int:
        return self.planned.partial + self.run.unreadable

    @property
    def exit_code(self) -> int:
        """0 done; 1 the store disagrees with the ledger; 3 finished with failures; 4 a prune was refused."""
        if self.run.store_surplus:
            return ERROR
        if self.run.not_pruned:
            return REFUSED
        return WITH_FAILURES if self.run.state == "partial" else DONE

    def to_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run.id,
            "index": self.index,
            "model": self.model,
            "source": self.run.source,
            "state": self.run.state,
            "documents": {
                "seen": self.run.seen,
                "embedded": self.planned.embedded,
                "unchanged": self.run.unchanged,
                "payload_only": self.planned.payload_only,
                "empty": self.planned.empty,
                "duplicate": self.run.duplicates,
                "failed": self.num_failed,
                "pruned": self.run.pruned,
            },
            "chunks": {
                "embedded": self.run.chunks_embedded,
                "reused": self.run.chunks_reused,
                "deleted": self.run.chunks_deleted,
                "truncated": self.run.chunks_truncated,
            },
            "tokens": self.run.tokens,
            "seconds": round(self.run.busy_s, 3),
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has got. backlog_tokens: queued or being embedded; of documents not read yet nothing is
    known."""

    index: str
    model: str
    run: Run
    backlog_tokens: int
    tokens_per_s: float

    @property
    def num_chunks(self) -> int:
        return self.run.chunks_embedded + self.run.chunks_reused

    @property
    def is_reading(self) -> bool:
        return self.run.state == "open"

    @property
    def eta_s(self) -> float | None:
        """Seconds until the known backlog is embedded; None while no rate is known."""
        return self.backlog_tokens / self.tokens_per_s if self.tokens_per_s > 0 else None


def report_run(ledger: Ledger, run: Run, *, was_resumed: bool = False) -> RunReport:
    collection = ledger.collections.find(run.collection)
    index, model = (collection.index, collection.version) if collection else (run.collection, "")
    return RunReport(index, model, run, ledger.runs.planned(run), was_resumed)


def worst_exit_code(reports: Sequence[RunReport]) -> int:
    """One code for several runs: an error outweighs a refusal, a refusal outweighs failures."""
    codes = {report.exit_code for report in reports}
    return next((code for code in (ERROR, REFUSED, WITH_FAILURES) if code in codes), DONE)
