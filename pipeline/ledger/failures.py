"""What could not be read, embedded or stored."""

from dataclasses import dataclass

from sqlalchemy import func, select

from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.tables import collections, failures


@dataclass(frozen=True, slots=True)
class Failure:
    """One document, or one chunk of it (ordinal >= 0), with the reason in one sentence and how often it was
    tried."""

    id: int
    collection: str
    source: str
    doc_id: str
    ordinal: int
    stage: str
    reason: str
    attempts: int


class Failures:
    """The open failures."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def list(self, index: str | None = None, limit: int | None = None) -> list[Failure]:
        columns = [failures.c[name] for name in Failure.__dataclass_fields__]
        statement = select(*columns).order_by(failures.c.id).limit(limit)
        if index is not None:
            statement = statement.join(collections, collections.c.name == failures.c.collection)
            statement = statement.where(collections.c.index_name == index)
        with self._db.read() as connection:
            return [Failure(*row) for row in connection.execute(statement)]

    def count(self, collection: str, source: str) -> int:
        """Open failures of one source in one collection."""
        with self._db.read() as connection:
            return int(
                connection.scalar(
                    select(func.count())
                    .select_from(failures)
                    .where(failures.c.collection == collection, failures.c.source == source)
                )
                or 0
            )
