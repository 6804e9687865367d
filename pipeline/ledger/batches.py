"""Batches: claimed with a lease, kept by progress, committed once behind the fence of their attempt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from embedctl.pipeline.errors import EmbedctlError
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.documents import record_failure
from embedctl.pipeline.ledger.runs import OPEN_STATES, Run, count, of_source
from embedctl.pipeline.ledger.tables import batches, documents, is_ready, runs, stragglers


class LeaseLost(EmbedctlError):
    """The batch belongs to another attempt by now; this one stops and writes nothing more."""


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """A batch and the claim on it. attempt: the fencing token of every later step."""

    id: int
    run_id: int
    attempt: int
    owner: str
    num_chunks: int
    num_tokens: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class DeadChunk:
    """A chunk that cannot be embedded or stored, by a deterministic error."""

    doc_id: str
    generation: int
    ordinal: int
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a worker did with a batch.

    chunks: (doc_id, generation) -> number of the batch's chunks, the dead ones included.
    """

    chunks: Mapping[tuple[str, int], int]
    dead: Sequence[DeadChunk]
    num_embedded: int
    num_reused: int
    num_tokens: int


class Batches:
    """The queue of record."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def claim(self, owner: str, lease_s: float, run_ids: Sequence[int]) -> ClaimedBatch | None:
        """Take the oldest ready batch of these runs, in one statement; the attempt is counted before any
        work."""
        candidate = (
            select(batches.c.id)
            .where(is_ready, batches.c.run_id.in_(run_ids), batches.c.not_before <= now())
            .order_by(batches.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .cte("candidate")
            # inlined, a nested loop may evaluate it twice and claim more than the limit
            .prefix_with("MATERIALIZED")
        )
        statement = (
            update(batches)
            .where(batches.c.id == candidate.c.id)
            .values(
                state="leased",
                attempt=batches.c.attempt + 1,
                lease_owner=owner,
                lease_until=now() + lease_s,
            )
            .returning(
                batches.c.id,
                batches.c.run_id,
                batches.c.attempt,
                batches.c.lease_owner,
                batches.c.num_chunks,
                batches.c.num_tokens,
                batches.c.payload,
            )
        )
        with self._db.write() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else ClaimedBatch(*row)

    def extend(self, batch: ClaimedBatch, lease_s: float) -> None:
        """Keep the lease; called on progress only, so that a wedged engine loses it. Raises LeaseLost."""
        with self._db.write() as connection:
            changed = connection.execute(
                update(batches).where(*_held(batch)).values(lease_until=now() + lease_s)
            ).rowcount
        if not changed:
            raise LeaseLost

    def current(self, batch: ClaimedBatch, run: Run, keys: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Of these (doc_id, generation) the ones still to be written. Raises LeaseLost unless the lease
        holds."""
        wanted = set(keys)
        with self._db.read() as connection:
            held = select(batches.c.id).where(*_held(batch), batches.c.lease_until > now())
            if connection.execute(held).one_or_none() is None:
                raise LeaseLost
            return wanted & set(_generations(connection, run, [doc_id for doc_id, _ in wanted]).items())

    def complete(self, batch: ClaimedBatch, run: Run, result: BatchResult) -> None:
        """Commit: count the batch for its documents and drop it, in one transaction.

        Raises LeaseLost when another attempt has the batch; then nothing is counted. It counts for a document
        only where the document's generation is still the batch's; a superseded one is swept, its points may
        have been written.
        """
        with self._db.write() as connection:
            if not connection.execute(delete(batches).where(*_held(batch))).rowcount:
                raise LeaseLost
            # the run before its documents, as a plan locks them: else the two may wait for each other
            count(
                connection,
                run,
                chunks_embedded=result.num_embedded,
                chunks_reused=result.num_reused,
                tokens=result.num_tokens,
            )
            doc_ids = [doc_id for doc_id, _ in result.chunks]
            generations = _generations(connection, run, doc_ids, lock=True)
            counted = {key for key in result.chunks if generations.get(key[0]) == key[1]}
            self._count_chunks(connection, run, result, counted)
            add_stragglers(
                self._db,
                connection,
                run,
                batch,
                [doc_id for doc_id, _ in result.chunks.keys() - counted],
                0.0,
            )
            for chunk in result.dead:
                if (chunk.doc_id, chunk.generation) in counted:
                    record_failure(
                        self._db, connection, run, chunk.doc_id, chunk.ordinal, chunk.stage, chunk.reason
                    )

    def _count_chunks(
        self, connection: Connection, run: Run, result: BatchResult, counted: set[tuple[str, int]]
    ) -> None:
        if not counted:
            return
        dead = dict.fromkeys(counted, 0)
        for chunk in result.dead:
            if (chunk.doc_id, chunk.generation) in dead:
                dead[chunk.doc_id, chunk.generation] += 1
        connection.execute(
            update(documents)
            .where(*of_source(documents, run), documents.c.doc_id == bindparam("key"))
            .values(
                chunks_left=documents.c.chunks_left - bindparam("number"),
                chunks_dead=documents.c.chunks_dead + bindparam("number_dead"),
            ),
            [
                {
                    "key": doc_id,
                    "number": result.chunks[doc_id, generation],
                    "number_dead": dead[doc_id, generation],
                }
                for doc_id, generation in sorted(counted)
            ],
        )
        settle_documents(connection, run, [doc_id for doc_id, _ in counted])

    def release(
        self, batch: ClaimedBatch, run: Run, wait_s: float, doc_ids: Sequence[str], ends_at: float
    ) -> None:
        """Hand the batch back unharmed: another attempt may start after `wait_s`.

        doc_ids: documents whose points this attempt may still be writing, until `ends_at`; empty before the
        upsert began.
        """
        with self._db.write() as connection:
            changed = connection.execute(
                update(batches)
                .where(*_held(batch))
                .values(state="ready", lease_owner="", not_before=now() + wait_s)
            ).rowcount
            if changed:
                add_stragglers(self._db, connection, run, batch, doc_ids, ends_at)

    def num_tokens(self, run_ids: Sequence[int]) -> int:
        """Tokens that wait or are being worked on: the backlog of these runs."""
        with self._db.read() as connection:
            total = connection.scalar(
                select(func.sum(batches.c.num_tokens)).where(batches.c.run_id.in_(run_ids))
            )
        return int(total or 0)

    def backlog(self) -> dict[int, int]:
        """Run id -> tokens of its batches that wait or are being worked on."""
        statement = (
            select(batches.c.run_id, func.sum(batches.c.num_tokens))
            .join(runs, runs.c.id == batches.c.run_id)
            .where(runs.c.state.in_(OPEN_STATES))
            .group_by(batches.c.run_id)
        )
        with self._db.read() as connection:
            return {run_id: int(total) for run_id, total in connection.execute(statement)}


def settle_documents(connection: Connection, run: Run, doc_ids: Sequence[str]) -> None:
    """Move documents that have no chunk left: to partial with a dead chunk, else to cleaning, or complete
    when nothing is older."""
    is_done = (
        *of_source(documents, run),
        documents.c.doc_id.in_(doc_ids),
        documents.c.state == "open",
        documents.c.chunks_left == 0,
    )
    connection.execute(update(documents).where(*is_done, documents.c.chunks_dead > 0).values(state="partial"))
    served = {"served": documents.c.generation}
    connection.execute(
        update(documents).where(*is_done, documents.c.generation == 1).values(state="complete", **served)
    )
    connection.execute(update(documents).where(*is_done).values(state="cleaning", **served))


def add_stragglers(
    db: Database,
    connection: Connection,
    run: Run,
    batch: ClaimedBatch,
    doc_ids: Sequence[str],
    ends_at: float,
) -> None:
    """Remember an attempt that may leave points of an old generation behind, until `ends_at` at the
    latest."""
    if not doc_ids:
        return
    rows = [
        {
            "collection": run.collection,
            "source": run.source,
            "doc_id": doc_id,
            "batch_id": batch.id,
            "attempt": batch.attempt,
            "owner": batch.owner,
            "ends_at": ends_at,
        }
        for doc_id in sorted(set(doc_ids))
    ]
    connection.execute(db.insert(stragglers).on_conflict_do_nothing(), rows)


def _held(batch: ClaimedBatch) -> tuple[Any, ...]:
    return batches.c.id == batch.id, batches.c.attempt == batch.attempt, batches.c.state == "leased"


def _generations(
    connection: Connection, run: Run, doc_ids: Sequence[str], *, lock: bool = False
) -> dict[str, int]:
    statement = select(documents.c.doc_id, documents.c.generation).where(
        *of_source(documents, run), documents.c.doc_id.in_(sorted(set(doc_ids)))
    )
    if lock:  # in the order of ids, so that two commits never wait for each other
        statement = statement.order_by(documents.c.doc_id).with_for_update()
    return {row.doc_id: row.generation for row in connection.execute(statement)}
