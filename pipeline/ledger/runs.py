"""Runs: one execution of indexing for one (source, collection), with the reader's lease and the counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, case, delete, func, select, update

from embedctl.pipeline.errors import RunBusy, RunLost
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.collections import bump_epoch
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.observations import draw_observation
from embedctl.pipeline.ledger.tables import documents, failures, runs
from embedctl.pipeline.owner import describe, is_known_dead

OPEN_STATES = ("open", "enumerated")


@dataclass(frozen=True, slots=True)
class Run:
    """One run. scan: number of its newest enumeration, the reader's fencing token.

    state: open (being read), enumerated (all read, work left), done, partial (finished with failures),
    cancelled.
    """

    id: int
    collection: str
    source: str
    state: str
    scan: int
    reader: str
    reader_until: float
    opened_at: float
    closed_at: float | None
    busy_s: float
    seen: int
    unchanged: int
    duplicates: int
    unreadable: int
    pruned: int
    not_pruned: int
    chunks_embedded: int
    chunks_reused: int
    chunks_deleted: int
    chunks_truncated: int
    tokens: int
    store_surplus: int | None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class PlannedCounts:
    """Documents of the run's newest enumeration that this run planned, by what became of them."""

    embedded: int = 0
    payload_only: int = 0
    empty: int = 0
    partial: int = 0
    at_work: int = 0


class Runs:
    """Opening, resuming, counting."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def open(self, collection: str, source: str, reader: str, lease_s: float) -> tuple[Run, bool]:
        """Open a run, or take the unfinished one over with a new enumeration; the flag says that it was
        resumed.

        Raises RunBusy while another reader holds it: its lease is valid and its process is not known to be
        dead.
        """
        with self._db.write() as connection:
            pair = (runs.c.collection == collection, runs.c.source == source)
            found = connection.execute(
                select(runs, now().label("now")).where(*pair, runs.c.state.in_(OPEN_STATES)).with_for_update()
            ).one_or_none()
            if found is not None and found.reader_until > found.now and not is_known_dead(found.reader):
                raise RunBusy(
                    f"Source {source!r} is being indexed into {collection} by {describe(found.reader)} "
                    f"(run {found.id}); wait for it "
                    "or stop it first."
                )
            scan = draw_observation(connection)
            if found is not None:
                run_id = self._take_over(connection, found.id, scan, reader, lease_s)
            else:
                run_id = self._insert(connection, collection, source, scan, reader, lease_s)
            return _get(connection, run_id), found is not None

    def _insert(
        self, connection: Connection, collection: str, source: str, scan: int, reader: str, lease_s: float
    ) -> int:
        row = {
            "collection": collection,
            "source": source,
            "state": "open",
            "scan": scan,
            "reader": reader,
            "reader_until": now() + lease_s,
            "opened_at": now(),
        }
        return int(connection.execute(runs.insert().values(row).returning(runs.c.id)).scalar_one())

    def _take_over(self, connection: Connection, run_id: int, scan: int, reader: str, lease_s: float) -> int:
        fresh = dict.fromkeys(("seen", "unchanged", "duplicates", "unreadable", "not_pruned"), 0)
        connection.execute(
            update(runs)
            .where(runs.c.id == run_id)
            .values(state="open", scan=scan, reader=reader, reader_until=now() + lease_s, **fresh)
        )
        return run_id

    def get(self, run_id: int) -> Run | None:
        with self._db.read() as connection:
            row = connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()
        return None if row is None else _to_run(row)

    def reload(self, run: Run) -> Run:
        """The run as it is now."""
        with self._db.read() as connection:
            return _get(connection, run.id)

    def list(self, limit: int = 20, *, only_open: bool = False) -> list[Run]:
        """The newest runs first."""
        statement = select(runs).order_by(runs.c.id.desc()).limit(limit)
        if only_open:
            statement = statement.where(runs.c.state.in_(OPEN_STATES))
        with self._db.read() as connection:
            return [_to_run(row) for row in connection.execute(statement)]

    def beat(self, run: Run, lease_s: float, busy_s: float) -> None:
        """Keep the reader's lease and add busy seconds. Raises RunLost when another reader has taken over."""
        with self._db.write() as connection:
            changed = connection.execute(
                update(runs)
                .where(runs.c.id == run.id, runs.c.scan == run.scan)
                .values(reader_until=now() + lease_s, busy_s=runs.c.busy_s + busy_s)
            ).rowcount
        if not changed:
            raise _lost(run)

    def leave(self, run: Run, busy_s: float) -> None:
        """Give the reader's lease back, so that the next command need not wait for it to end."""
        with self._db.write() as connection:
            connection.execute(
                update(runs)
                .where(runs.c.id == run.id, runs.c.scan == run.scan)
                .values(reader_until=0.0, busy_s=runs.c.busy_s + busy_s)
            )

    def planned(self, run: Run) -> PlannedCounts:
        """What became of the documents that this run planned; exact also when it was killed and resumed."""
        with self._db.read() as connection:
            found = connection.execute(
                select(documents.c.outcome, documents.c.state, func.count())
                .where(
                    *of_source(documents, run),
                    documents.c.run_id == run.id,
                    documents.c.enumeration == run.scan,
                )
                .group_by(documents.c.outcome, documents.c.state)
            )
            counts = dict.fromkeys(("embedded", "payload_only", "empty", "partial", "at_work"), 0)
            for outcome, state, number in found:
                if state in ("partial", "open"):
                    counts["partial" if state == "partial" else "at_work"] += number
                elif outcome in counts:
                    counts[outcome] += number
        return PlannedCounts(**counts)

    def finish_enumeration(self, run: Run, max_prune: float, *, may_prune: bool = True) -> int:
        """The source was enumerated completely: tombstone what vanished, unless that is more than `max_prune`
        (0..1) of it.

        may_prune: False when what seems to have vanished may be what could not be read; then it stays.
        Returns the number of documents that vanished but stay, because they are too many; 0 when all were
        pruned.
        """
        with self._db.write(is_durable=True) as connection:
            check_fence(connection, run)
            vanished = (
                *of_source(documents, run),
                documents.c.state.not_in(("gone", "pruning")),
                documents.c.enumeration < run.scan,
                documents.c.observation <= run.scan,
            )
            num_vanished = int(
                connection.scalar(select(func.count()).select_from(documents).where(*vanished)) or 0
            )
            num_present = int(
                connection.scalar(
                    select(func.count())
                    .select_from(documents)
                    .where(*of_source(documents, run), documents.c.state.not_in(("gone", "pruning")))
                )
                or 0
            )
            is_refused = may_prune and num_vanished > max_prune * num_present
            if num_vanished and may_prune and not is_refused:
                self._prune(connection, run, vanished)
            self._forget_read_failures(connection, run)
            connection.execute(
                update(runs)
                .where(runs.c.id == run.id)
                .values(state="enumerated", not_pruned=num_vanished if is_refused else 0)
            )
        return num_vanished if is_refused else 0

    def _prune(self, connection: Connection, run: Run, vanished: Sequence[Any]) -> None:
        connection.execute(
            delete(failures).where(
                *of_source(failures, run),
                failures.c.doc_id.in_(select(documents.c.doc_id).where(*vanished)),
            )
        )
        stored = connection.scalar(
            select(func.coalesce(func.sum(stored_chunks()), 0)).select_from(documents).where(*vanished)
        )
        pruned = connection.execute(update(documents).where(*vanished).values(tombstone(run))).rowcount
        count(connection, run, pruned=pruned, chunks_deleted=int(stored or 0))
        bump_epoch(connection, run.collection)

    def _forget_read_failures(self, connection: Connection, run: Run) -> None:
        """A failure to read that this enumeration did not meet again is over."""
        connection.execute(
            delete(failures).where(
                *of_source(failures, run),
                failures.c.ordinal == -1,
                failures.c.enumeration < run.scan,
            )
        )


def check_fence(connection: Connection, run: Run) -> None:
    """Raise RunLost unless this reader's enumeration is still the run's; locks the run's row until commit."""
    row = connection.execute(
        select(runs.c.scan, runs.c.state).where(runs.c.id == run.id).with_for_update()
    ).one_or_none()
    if row is None or row.scan != run.scan or row.state != "open":
        raise _lost(run)


def count(connection: Connection, run: Run, **increments: int) -> None:
    """Add to the run's counters inside the caller's transaction."""
    added = {name: runs.c[name] + number for name, number in increments.items() if number}
    if added:
        connection.execute(update(runs).where(runs.c.id == run.id).values(added))


def tombstone(run: Run) -> dict[str, Any]:
    """Values that make a document's row a tombstone: it takes the next generation, so that nothing older
    survives."""
    return {
        "state": "pruning",
        "generation": documents.c.generation + 1,
        "served": documents.c.generation + 1,
        "observation": case((documents.c.observation > run.scan, documents.c.observation), else_=run.scan),
        "input_hash": "",
        "payload_hash": "",
        "num_chunks": 0,
        "chunks_left": 0,
        "chunks_dead": 0,
        "run_id": run.id,
        "outcome": "removed",
    }


def stored_chunks() -> Any:
    """SQL: how many points of a document's newest generation are in the store."""
    return documents.c.num_chunks - documents.c.chunks_left - documents.c.chunks_dead


def of_source(table: Table, run: Run) -> tuple[Any, Any]:
    """SQL: the rows of documents or failures that belong to the run's source in its collection."""
    return table.c.collection == run.collection, table.c.source == run.source


def _lost(run: Run) -> RunLost:
    return RunLost(
        f"Run {run.id} of source {run.source!r} was taken over by another process; this one stops."
    )


def _get(connection: Connection, run_id: int) -> Run:
    return _to_run(connection.execute(select(runs).where(runs.c.id == run_id)).one())


def _to_run(row: Row[Any]) -> Run:
    values = row._mapping
    return Run(**{name: values[name] for name in Run.__dataclass_fields__})
