"""Version labels: each bound once, for ever, to one embedding space and one chunking."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from embedctl.pipeline.errors import UnknownVersion, VersionConflict
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.tables import spaces, versions


@dataclass(frozen=True, slots=True)
class Version:
    """A label and what it is bound to.

    space: the canonical fields of the EmbeddingSpace; chunking: those of the Chunking; ref and provenance:
    where the weights came from, which is not part of the space.
    """

    label: str
    space_id: str
    space: Mapping[str, Any]
    chunking: Mapping[str, Any]
    ref: str
    provenance: Mapping[str, Any]


class Versions:
    """The bound labels."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, label: str) -> Version:
        """Raises UnknownVersion, which says how to define one."""
        version = self.find(label)
        if version is None:
            raise UnknownVersion(
                f"No version is called {label!r}. Define it with `embedctl models add {label} MODEL`, or "
                "list the known ones with `embedctl models ls`."
            )
        return version

    def find(self, label: str) -> Version | None:
        with self._db.read() as connection:
            row = connection.execute(_select().where(versions.c.label == label)).one_or_none()
        return None if row is None else _to_version(row)

    def list(self) -> list[Version]:
        with self._db.read() as connection:
            return [_to_version(row) for row in connection.execute(_select().order_by(versions.c.label))]

    def bind(self, version: Version) -> Version:
        """Bind the label, or find it bound to the same already. Raises VersionConflict when it means
        something else."""
        with self._db.write() as connection:
            space = {"space_id": version.space_id, "definition": dict(version.space), "created_at": now()}
            connection.execute(self._db.insert(spaces).values(space).on_conflict_do_nothing())
            row = {
                "label": version.label,
                "space_id": version.space_id,
                "chunking": dict(version.chunking),
                "ref": version.ref,
                "provenance": dict(version.provenance),
                "created_at": now(),
            }
            connection.execute(self._db.insert(versions).values(row).on_conflict_do_nothing())
            bound = _to_version(connection.execute(_select().where(versions.c.label == version.label)).one())
        if (bound.space_id, bound.chunking) != (version.space_id, dict(version.chunking)):
            raise VersionConflict(
                f"Version {version.label} is bound to space {bound.space_id} with chunking "
                f"{', '.join(f'{key} {value}' for key, value in bound.chunking.items())} "
                "and can never come to mean another; use a new label."
            )
        return bound


def _select() -> Any:
    joined = versions.join(spaces, versions.c.space_id == spaces.c.space_id)
    return select(versions, spaces.c.definition).select_from(joined)


def _to_version(row: Row[Any]) -> Version:
    return Version(row.label, row.space_id, row.definition, row.chunking, row.ref, row.provenance)
