"""Documents of a collection: what is known of each, and what a new observation of it calls for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, func, select, update

from embedctl.pipeline.document import Document, Unreadable
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.collections import bump_epoch
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.runs import Run, check_fence, count, of_source
from embedctl.pipeline.ledger.tables import batches, documents, failures


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The ledger's row of one document in one collection.

    state: open (planned, chunks left), cleaning (served, older points left), complete, partial (a chunk is
    dead; the older generation stays), pruning (removed, points left), gone.
    generation: the last one given out. served: the last one whose points are all acknowledged.
    """

    doc_id: str
    state: str
    generation: int
    served: int
    observation: int
    enumeration: int
    position: int
    input_hash: str
    payload_hash: str
    num_chunks: int
    chunks_left: int
    chunks_dead: int
    run_id: int

    @property
    def num_stored(self) -> int:
        """Points of the newest generation in the store."""
        return self.num_chunks - self.chunks_left - self.chunks_dead


class Decision(StrEnum):
    """What an observation of a document calls for."""

    EMBED = "embedded"
    PAYLOAD = "payload_only"
    EMPTY = "empty"
    SKIP = "unchanged"
    DUPLICATE = "duplicate"
    STALE = "stale"

    @property
    def is_plan(self) -> bool:
        return self in (Decision.EMBED, Decision.PAYLOAD, Decision.EMPTY)


def decide(row: DocumentRow | None, document: Document, scan: int) -> Decision:
    """Compare an observation with the row.

    Of records that share an id the lowest position of the newest enumeration wins. What is planned at this
    content already is adopted, also while it is still at work. An observation older than the row's is
    refused. A partial document is tried again.
    """
    planned = Decision.EMPTY if document.is_empty else Decision.EMBED
    if row is None:
        return planned
    if row.enumeration == scan and row.position < document.position:
        return Decision.DUPLICATE
    is_alive = row.state in ("open", "cleaning", "complete")
    has_same_input = is_alive and row.input_hash == document.input_hash
    if has_same_input and row.payload_hash == document.payload_hash:
        return Decision.SKIP
    if document.observation < row.observation:
        return Decision.STALE
    if has_same_input and row.state != "open" and planned is Decision.EMBED:
        return Decision.PAYLOAD
    return planned


@dataclass(frozen=True, slots=True)
class Plan:
    """A document to be written at its next generation, cut into `num_chunks`."""

    document: Document
    decision: Decision
    generation: int
    num_chunks: int


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Queued work; payload as pipeline/payload.py encodes it."""

    payload: bytes
    num_chunks: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """What a reader saw since its last transaction, and the work that follows from it. Written whole or not
    at all."""

    plans: Sequence[Plan] = ()
    batches: Sequence[NewBatch] = ()
    skips: Sequence[Document] = ()
    duplicates: Sequence[Document] = ()
    stale: Sequence[Document] = ()
    unreadable: Sequence[Unreadable] = ()
    num_truncated: int = 0

    @property
    def num_documents(self) -> int:
        kinds = (self.plans, self.skips, self.duplicates, self.stale, self.unreadable)
        return sum(len(kind) for kind in kinds)


class WindowOutdated(Exception):
    """A row changed since the window was decided; decide again."""


class Documents:
    """Rows of documents, and the transaction that plans them."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def rows(self, collection: str, source: str, doc_ids: Sequence[str]) -> dict[str, DocumentRow]:
        """The rows of these documents, by id."""
        with self._db.read() as connection:
            return _rows(connection, collection, source, doc_ids)

    def write(self, run: Run, window: Window) -> None:
        """Plan, skip and count a window in one transaction.

        Raises RunLost when another reader took the run over, WindowOutdated when a row is not as it was
        decided on.
        """
        # durable: a generation whose points are in the store must not be given out a second time
        with self._db.write(is_durable=True) as connection:
            check_fence(connection, run)
            rows = self._checked_rows(connection, run, window)
            self._write_plans(connection, run, window.plans, rows)
            self._mark_seen(connection, run, window)
            self._write_batches(connection, run, window.batches)
            self._record_failures(connection, run, window)
            self._count(connection, run, window, rows)

    def _count(
        self, connection: Connection, run: Run, window: Window, rows: Mapping[str, DocumentRow]
    ) -> None:
        # a skip of what this very run planned before it was resumed is not an unchanged document
        unchanged = sum(rows[document.doc_id].run_id != run.id for document in window.skips)
        count(
            connection,
            run,
            seen=window.num_documents,
            duplicates=len(window.duplicates),
            unchanged=unchanged + len(window.stale),
            unreadable=len(window.unreadable),
            chunks_truncated=window.num_truncated,
        )

    def _checked_rows(self, connection: Connection, run: Run, window: Window) -> Mapping[str, DocumentRow]:
        """Nobody else plans this source, but a removal or a commit may have come between deciding and
        writing."""
        decided: list[tuple[Document, Decision, int | None]] = [
            (plan.document, plan.decision, plan.generation - 1) for plan in window.plans
        ]
        decided += [(document, Decision.SKIP, None) for document in window.skips]
        rows = _rows(connection, run.collection, run.source, [document.doc_id for document, _, _ in decided])
        for document, decision, generation in decided:
            row = rows.get(document.doc_id)
            is_moved = generation is not None and generation != (row.generation if row else 0)
            decided_now = decide(row, document, run.scan)
            # a commit may complete an open row meanwhile: what was to be embedded is then only a new payload
            if is_moved or (decided_now is not decision and not (decided_now.is_plan and decision.is_plan)):
                raise WindowOutdated
        return rows

    def _write_plans(
        self, connection: Connection, run: Run, plans: Sequence[Plan], rows: Mapping[str, DocumentRow]
    ) -> None:
        if not plans:
            return
        values = [_planned(run, plan, rows.get(plan.document.doc_id)) for plan in plans]
        key = ("collection", "source", "doc_id")
        statement = self._db.insert(documents)
        updated = {name: statement.excluded[name] for name in values[0] if name not in key}
        connection.execute(statement.on_conflict_do_update(index_elements=key, set_=updated), values)
        superseded = sum(
            rows[plan.document.doc_id].num_stored for plan in plans if plan.document.doc_id in rows
        )
        count(connection, run, chunks_deleted=superseded)
        bump_epoch(connection, run.collection)

    def _mark_seen(self, connection: Connection, run: Run, window: Window) -> None:
        """Record enumeration, position and observation of what stays as it is; an unreadable one only counts
        as seen."""
        if window.skips:
            connection.execute(
                update(documents)
                .where(*of_source(documents, run), documents.c.doc_id == bindparam("key"))
                .values(
                    enumeration=run.scan,
                    position=bindparam("new_position"),
                    observation=case(
                        (documents.c.observation > bindparam("number"), documents.c.observation),
                        else_=bindparam("number"),
                    ),
                ),
                [
                    {"key": item.doc_id, "new_position": item.position, "number": item.observation}
                    for item in window.skips
                ],
            )
        seen = [item.doc_id for item in window.stale] + [item.doc_id for item in window.unreadable]
        for doc_id in seen:
            is_folder = doc_id.endswith("/")
            matches = (
                func.substr(documents.c.doc_id, 1, len(doc_id)) == doc_id
                if is_folder
                else documents.c.doc_id == doc_id
            )
            connection.execute(
                update(documents).where(*of_source(documents, run), matches).values(enumeration=run.scan)
            )

    def _write_batches(self, connection: Connection, run: Run, new: Sequence[NewBatch]) -> None:
        if new:
            connection.execute(
                batches.insert(),
                [
                    {
                        "run_id": run.id,
                        "state": "ready",
                        "num_chunks": batch.num_chunks,
                        "num_tokens": batch.num_tokens,
                        "payload": batch.payload,
                    }
                    for batch in new
                ],
            )

    def _record_failures(self, connection: Connection, run: Run, window: Window) -> None:
        """What was read well has no failure any more; what could not be read has one, with a count of
        attempts."""
        well = [plan.document.doc_id for plan in window.plans] + [item.doc_id for item in window.skips]
        for some in _slices(well):
            connection.execute(
                delete(failures).where(
                    *of_source(failures, run),
                    failures.c.doc_id.in_(some),
                )
            )
        for item in window.unreadable:
            record_failure(self._db, connection, run, item.doc_id, -1, item.stage, item.reason)


def record_failure(
    db: Database, connection: Connection, run: Run, doc_id: str, ordinal: int, stage: str, reason: str
) -> None:
    """Write or repeat a failure; ordinal -1 is the whole document."""
    statement = db.insert(failures).values(
        collection=run.collection,
        source=run.source,
        doc_id=doc_id,
        ordinal=ordinal,
        stage=stage,
        reason=reason,
        attempts=1,
        enumeration=run.scan,
        created_at=now(),
    )
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["collection", "source", "doc_id", "ordinal"],
            set_={
                "stage": stage,
                "reason": reason,
                "attempts": failures.c.attempts + 1,
                "enumeration": run.scan,
                "created_at": now(),
            },
        )
    )


def _planned(run: Run, plan: Plan, row: DocumentRow | None) -> dict[str, Any]:
    document = plan.document
    served = row.served if row else 0
    if plan.num_chunks:
        state = "open"
    else:  # nothing to embed: it is served as it is, and only older points may be left to clean
        state = "cleaning" if plan.generation > 1 else "complete"
        served = plan.generation
    return {
        "collection": run.collection,
        "source": run.source,
        "doc_id": document.doc_id,
        "state": state,
        "generation": plan.generation,
        "served": served,
        "observation": max(document.observation, row.observation if row else 0),
        "enumeration": run.scan,
        "position": document.position,
        "input_hash": document.input_hash,
        "payload_hash": document.payload_hash,
        "num_chunks": plan.num_chunks,
        "chunks_left": plan.num_chunks,
        "chunks_dead": 0,
        "run_id": run.id,
        "outcome": plan.decision.value if plan.num_chunks else Decision.EMPTY.value,
    }


def _rows(
    connection: Connection, collection: str, source: str, doc_ids: Sequence[str]
) -> dict[str, DocumentRow]:
    found: dict[str, DocumentRow] = {}
    columns: list[Any] = [documents.c[name] for name in DocumentRow.__dataclass_fields__]
    for some in _slices(doc_ids):
        statement = select(*columns).where(
            documents.c.collection == collection, documents.c.source == source, documents.c.doc_id.in_(some)
        )
        for row in connection.execute(statement):
            found[row.doc_id] = _to_document(row)
    return found


def _slices(items: Sequence[str], size: int = 500) -> Iterable[Sequence[str]]:
    # SQLite binds at most 32,766 values, and plans with shorter lists are cached
    return (items[start : start + size] for start in range(0, len(items), size))


def _to_document(row: Sequence[Any]) -> DocumentRow:
    return DocumentRow(*row)
