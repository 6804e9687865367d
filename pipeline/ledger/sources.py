"""Source labels of an index, each bound to the path it was first used for."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select, update

from embedctl.pipeline.errors import SourceConflict
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.tables import indexes, sources


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A label and its absolute path."""

    index: str
    label: str
    path: Path


class Sources:
    """The bound labels."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def list(self, index: str | None = None) -> list[SourceRow]:
        statement = select(sources).order_by(sources.c.index_name, sources.c.label)
        if index is not None:
            statement = statement.where(sources.c.index_name == index)
        with self._db.read() as connection:
            return [
                SourceRow(row.index_name, row.label, Path(row.path)) for row in connection.execute(statement)
            ]

    def bind(self, index: str, label: str, path: Path, *, rebind: bool = False) -> SourceRow:
        """Bind the label to the path, or find it bound to it. Raises SourceConflict for another path unless
        `rebind`.

        The documents of a source are pruned when they are not found under its path: a label that silently
        moved would delete them.
        """
        with self._db.write() as connection:
            row = {"name": index, "live_version": None, "created_at": now()}
            connection.execute(self._db.insert(indexes).values(row).on_conflict_do_nothing())
            row = {"index_name": index, "label": label, "path": str(path), "created_at": now()}
            connection.execute(self._db.insert(sources).values(row).on_conflict_do_nothing())
            key = (sources.c.index_name == index, sources.c.label == label)
            bound = connection.execute(select(sources.c.path).where(*key)).scalar_one()
            if bound != str(path) and rebind:
                connection.execute(update(sources).where(*key).values(path=str(path)))
                bound = str(path)
        if bound != str(path):
            raise SourceConflict(
                f"Source {label!r} of index {index!r} is {bound}, not {path}. Give the new folder a name "
                "of its own with "
                f"`--source NAME`, or say that the source has moved with `--rebind`."
            )
        return SourceRow(index, label, path)
