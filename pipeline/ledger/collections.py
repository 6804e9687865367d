"""Indexes and their collections: `docs` has one collection per version, and an alias row that names the live
one."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select, update

from embedctl.pipeline.errors import EmbedctlError
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.tables import collections, indexes


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A collection of the ledger. state: building, live or retired."""

    name: str
    index: str
    version: str
    state: str
    epoch: int


class NothingLive(EmbedctlError):
    """The index has no live collection."""


def collection_name(index: str, version: str) -> str:
    return f"{index}__{version}"


class Collections:
    """Indexes, collections and the alias."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def ensure(self, index: str, version: str) -> CollectionRow:
        """The collection of this index at this version, made `building` when it is new."""
        name = collection_name(index, version)
        found = self.find(name)
        if found is not None:
            return found
        with self._db.write() as connection:
            row = {"name": index, "live_version": None, "created_at": now()}
            connection.execute(self._db.insert(indexes).values(row).on_conflict_do_nothing())
            row = {
                "name": name,
                "index_name": index,
                "version": version,
                "state": "building",
                "created_at": now(),
            }
            connection.execute(self._db.insert(collections).values(row).on_conflict_do_nothing())
            return _one(connection, name)

    def find(self, name: str) -> CollectionRow | None:
        with self._db.read() as connection:
            row = connection.execute(select(collections).where(collections.c.name == name)).one_or_none()
        return None if row is None else _to_collection(row)

    def list(self, index: str | None = None) -> list[CollectionRow]:
        statement = select(collections).order_by(collections.c.created_at, collections.c.name)
        if index is not None:
            statement = statement.where(collections.c.index_name == index)
        with self._db.read() as connection:
            return [_to_collection(row) for row in connection.execute(statement)]

    def require_index(self, index: str) -> None:
        """Raises NothingLive when there is no such index."""
        if not self.list(index):
            raise NothingLive(self._why_nothing_is_live(index))

    def live(self, index: str) -> CollectionRow:
        """The collection that the alias points at. Raises NothingLive, which says what is missing."""
        with self._db.read() as connection:
            row = connection.execute(
                select(collections)
                .join(indexes, indexes.c.name == collections.c.index_name)
                .where(indexes.c.name == index, indexes.c.live_version == collections.c.version)
            ).one_or_none()
        if row is None:
            raise NothingLive(self._why_nothing_is_live(index))
        return _to_collection(row)

    def _why_nothing_is_live(self, index: str) -> str:
        building = [collection.version for collection in self.list(index)]
        if not building:
            return f"There is no index {index!r} here yet; make it with `embedctl index PATH`."
        return (
            f"Index {index!r} is still being built at {', '.join(building)}; finish it with `embedctl "
            "index PATH`, or search what "
            f"is there already with `--model {building[0]}`."
        )


def make_live_if_first(connection: Connection, name: str) -> bool:
    """Point the alias at the collection when the index has no live one. True when it was moved."""
    collection = _one(connection, name)
    moved = connection.execute(
        update(indexes)
        .where(indexes.c.name == collection.index, indexes.c.live_version.is_(None))
        .values(live_version=collection.version)
    ).rowcount
    if moved:
        connection.execute(update(collections).where(collections.c.name == name).values(state="live"))
    return bool(moved)


def bump_epoch(connection: Connection, name: str) -> None:
    """Say that the collection's documents changed."""
    connection.execute(
        update(collections).where(collections.c.name == name).values(epoch=collections.c.epoch + 1)
    )


def _one(connection: Connection, name: str) -> CollectionRow:
    return _to_collection(connection.execute(select(collections).where(collections.c.name == name)).one())


def _to_collection(row: Row[Any]) -> CollectionRow:
    return CollectionRow(row.name, row.index_name, row.version, row.state, row.epoch)
