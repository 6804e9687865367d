"""The ledger's side of the tick: what is due, and the transaction that records that it was done."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, exists, func, select, true, tuple_, update

from embedctl.pipeline.ledger.batches import ClaimedBatch, add_stragglers
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.collections import make_live_if_first
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.documents import NewBatch, record_failure
from embedctl.pipeline.ledger.runs import Run, of_source, stored_chunks
from embedctl.pipeline.ledger.tables import (
    batches,
    documents,
    failures,
    is_at_work,
    ledger,
    runs,
    stragglers,
)
from embedctl.pipeline.owner import is_known_dead


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A document whose points below `generation` are to be deleted; state: cleaning or pruning."""

    collection: str
    source: str
    doc_id: str
    generation: int
    state: str


@dataclass(frozen=True, slots=True)
class Straggler:
    """An attempt that may have left points below `served` behind. is_over: its time is up."""

    collection: str
    source: str
    doc_id: str
    batch_id: int
    attempt: int
    owner: str
    served: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class SettledDocument:
    """A complete document, and how many points it should have."""

    doc_id: str
    num_stored: int


class Maintenance:
    """Idempotent steps; any process may take them, one at a time under the tick's lease."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def acquire(self, owner: str, lease_s: float) -> bool:
        """Take or keep the tick's lease; False while another living process has it."""
        with self._db.write() as connection:
            row = connection.execute(select(ledger, now().label("now")).with_for_update()).one()
            if row.tick_owner != owner and row.tick_until > row.now and not is_known_dead(row.tick_owner):
                return False
            connection.execute(update(ledger).values(tick_owner=owner, tick_until=now() + lease_s))
        return True

    def release(self, owner: str) -> None:
        with self._db.write() as connection:
            connection.execute(update(ledger).where(ledger.c.tick_owner == owner).values(tick_until=0.0))

    # -- reap

    def lost_batches(self, limit: int = 50) -> list[ClaimedBatch]:
        """Leased batches whose lease is over, or whose worker's process is known to be dead."""
        columns = [
            batches.c[name] for name in ("id", "run_id", "attempt", "lease_owner", "num_chunks", "num_tokens")
        ]
        with self._db.read() as connection:
            leased = connection.execute(
                select(*columns, batches.c.lease_until < now()).where(batches.c.state == "leased")
            ).all()
        lost = [row for row in leased if row[-1] or is_known_dead(row.lease_owner)]
        return [
            ClaimedBatch(
                row.id, row.run_id, row.attempt, row.lease_owner, row.num_chunks, row.num_tokens, b""
            )
            for row in lost[:limit]
        ]

    def payload(self, batch: ClaimedBatch) -> bytes | None:
        """The batch's payload, None when it is done."""
        with self._db.read() as connection:
            found: bytes | None = connection.scalar(select(batches.c.payload).where(batches.c.id == batch.id))
        return found

    def reap(
        self,
        batch: ClaimedBatch,
        run: Run,
        pieces: Sequence[NewBatch],
        doc_ids: Sequence[str],
        request_timeout_s: float,
    ) -> bool:
        """Put a lost batch back as `pieces`, which it was split into: a worker's death never makes it dead.

        doc_ids: its documents, which the lost attempt may still be writing. False when it was not lost after
        all.
        """
        with self._db.write() as connection:
            is_lost = true() if is_known_dead(batch.owner) else batches.c.lease_until < now()
            gone = connection.execute(
                delete(batches).where(
                    batches.c.id == batch.id,
                    batches.c.attempt == batch.attempt,
                    batches.c.state == "leased",
                    is_lost,
                )
            ).rowcount
            if not gone:
                return False
            ends_at = float(connection.scalar(select(now())) or 0.0) + request_timeout_s
            add_stragglers(self._db, connection, run, batch, doc_ids, ends_at)
            for piece in pieces:
                connection.execute(
                    batches.insert().values(
                        run_id=run.id,
                        state="ready",
                        num_chunks=piece.num_chunks,
                        num_tokens=piece.num_tokens,
                        payload=piece.payload,
                    )
                )
        return True

    # -- clean

    def to_clean(self, limit: int = 256) -> list[Cleaning]:
        columns = [documents.c[name] for name in Cleaning.__dataclass_fields__]
        is_due = documents.c.state.in_(("cleaning", "pruning"))
        statement = select(*columns).where(is_at_work, is_due).limit(limit)
        with self._db.read() as connection:
            return [Cleaning(*row) for row in connection.execute(statement)]

    def mark_clean(self, cleaned: Sequence[Cleaning]) -> None:
        """cleaning -> complete and pruning -> gone, only where the generation is still the one below which
        was deleted."""
        with self._db.write() as connection:
            for item in cleaned:
                connection.execute(
                    update(documents)
                    .where(
                        documents.c.collection == item.collection,
                        documents.c.source == item.source,
                        documents.c.doc_id == item.doc_id,
                        documents.c.generation == item.generation,
                        documents.c.state == item.state,
                    )
                    .values(state="complete" if item.state == "cleaning" else "gone")
                )

    # -- sweep

    def stragglers(self, limit: int = 256) -> list[Straggler]:
        statement = (
            select(
                stragglers.c.collection,
                stragglers.c.source,
                stragglers.c.doc_id,
                stragglers.c.batch_id,
                stragglers.c.attempt,
                stragglers.c.owner,
                documents.c.served,
                stragglers.c.ends_at < now(),
            )
            .join(
                documents,
                (documents.c.collection == stragglers.c.collection)
                & (documents.c.source == stragglers.c.source)
                & (documents.c.doc_id == stragglers.c.doc_id),
            )
            .order_by(stragglers.c.ends_at)
            .limit(limit)
        )
        with self._db.read() as connection:
            return [Straggler(*row) for row in connection.execute(statement)]

    def forget(self, swept: Sequence[Straggler]) -> None:
        keys = [(item.collection, item.source, item.doc_id, item.batch_id, item.attempt) for item in swept]
        columns = [stragglers.c[name] for name in ("collection", "source", "doc_id", "batch_id", "attempt")]
        with self._db.write() as connection:
            for start in range(0, len(keys), 100):
                connection.execute(delete(stragglers).where(tuple_(*columns).in_(keys[start : start + 100])))

    # -- close

    def closable_runs(self) -> list[int]:
        """Enumerated runs with no batch, no document at work and no straggler left."""
        with self._db.read() as connection:
            return list(connection.scalars(select(runs.c.id).where(*_is_closable())))

    def num_stored(self, run: Run) -> tuple[int, list[str]]:
        """Points that the source's documents have in the store, and the partial ones, which are left out of
        the number."""
        pair = of_source(documents, run)
        with self._db.read() as connection:
            total = connection.scalar(
                select(func.sum(stored_chunks())).where(*pair, documents.c.state != "partial")
            )
            partial = connection.scalars(
                select(documents.c.doc_id).where(*pair, documents.c.state == "partial")
            )
            return int(total or 0), list(partial)

    def settled_documents(self, run: Run) -> list[SettledDocument]:
        """Complete documents of the run's source, and how many points each should have."""
        statement = select(documents.c.doc_id, stored_chunks()).where(
            *of_source(documents, run), documents.c.state == "complete"
        )
        with self._db.read() as connection:
            return [SettledDocument(*row) for row in connection.execute(statement)]

    def mark_damaged(self, run: Run, damaged: Sequence[SettledDocument]) -> None:
        """Let documents be planned again by the next run, as failures of this one.

        Only rows: what they need is written by the plan that follows, behind all its fences.
        """
        with self._db.write() as connection:
            for item in damaged:
                marked = connection.execute(
                    update(documents)
                    .where(
                        *of_source(documents, run),
                        documents.c.doc_id == item.doc_id,
                        documents.c.state == "complete",
                    )
                    .values(state="partial")
                ).rowcount
                if marked:
                    reason = "Its points in the store were not complete; the next run embeds it again."
                    record_failure(self._db, connection, run, item.doc_id, -1, "store", reason)

    def close(self, run: Run, store_surplus: int) -> bool:
        """Close the run with what the store has too much or too little; True when its collection went live
        with it.

        A run that was taken over since it was found closable stays open: its new reader may have brought
        work.
        """
        with self._db.write() as connection:
            pair = of_source(failures, run)
            has_failures = connection.scalar(select(exists().where(*pair)))
            closed = connection.execute(
                update(runs)
                .where(runs.c.id == run.id, runs.c.scan == run.scan, *_is_closable())
                .values(
                    state="partial" if has_failures else "done",
                    closed_at=now(),
                    store_surplus=store_surplus,
                    reader_until=0.0,
                )
            ).rowcount
            return bool(closed) and make_live_if_first(connection, run.collection)


def _is_closable() -> tuple[ColumnElement[bool], ...]:
    at_work = exists().where(
        documents.c.collection == runs.c.collection, documents.c.source == runs.c.source, is_at_work
    )
    waiting = exists().where(batches.c.run_id == runs.c.id)
    late = exists().where(stragglers.c.collection == runs.c.collection, stragglers.c.source == runs.c.source)
    return runs.c.state == "enumerated", ~at_work, ~waiting, ~late
