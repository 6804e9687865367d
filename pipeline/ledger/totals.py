"""What a collection holds, counted."""

from dataclasses import dataclass

from sqlalchemy import case, func, select

from embedctl.pipeline.ledger.collections import CollectionRow
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.runs import stored_chunks
from embedctl.pipeline.ledger.tables import documents, failures, sources


@dataclass(frozen=True, slots=True)
class Totals:
    """documents: not removed ones; chunks: their points in the store; partial: documents with a dead
    chunk."""

    documents: int
    chunks: int
    partial: int
    failures: int
    sources: tuple[str, ...]


class CollectionTotals:
    """Counts over all documents of a collection."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, collection: CollectionRow) -> Totals:
        is_partial = case((documents.c.state == "partial", 1), else_=0)
        with self._db.read() as connection:
            row = connection.execute(
                select(func.count(), func.sum(stored_chunks()), func.sum(is_partial)).where(
                    documents.c.collection == collection.name, documents.c.state.not_in(("gone", "pruning"))
                )
            ).one()
            num_failures = connection.scalar(
                select(func.count()).select_from(failures).where(failures.c.collection == collection.name)
            )
            labels = connection.scalars(
                select(sources.c.label)
                .where(sources.c.index_name == collection.index)
                .order_by(sources.c.label)
            )
            return Totals(
                int(row[0]), int(row[1] or 0), int(row[2] or 0), int(num_failures or 0), tuple(labels)
            )
