"""What is known about a stored collection: a small JSON file that is replaced as a whole, beside the shard it
points at."""

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from embedctl.pipeline.errors import ForeignCollection, StoreError
from embedctl.pipeline.stores.base import Collection

FACTS_FILE = "collection.json"
#: Layout of a collection's folder; another number was written by another release.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """collection: whose points these are. shard: name of the folder that holds them. num_dead: points
    deleted, not yet vacuumed."""

    collection: Collection
    shard: str
    num_dead: int = 0

    def check(self, asked: Collection) -> None:
        """Raise ForeignCollection when the request was made for another collection of the same name."""
        if asked == self.collection:
            return
        stored, wanted = asdict(self.collection), asdict(asked)
        differences = ", ".join(
            f"{key} {stored[key]!r} (asked for {wanted[key]!r})"
            for key in stored
            if stored[key] != wanted[key]
        )
        raise ForeignCollection(
            f"The collection {asked.name!r} in the store has {differences}: "
            "use another version label or index name, or the ledger that made it."
        )


def read_facts(folder: Path) -> Facts | None:
    """The facts of the collection in this folder; None where none was completed."""
    path = folder / FACTS_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _parse(orjson.loads(raw))
    except (KeyError, TypeError, ValueError) as exc:
        raise StoreError(f"{path} is damaged: delete its folder and index again.") from exc


def write_facts(folder: Path, facts: Facts) -> None:
    """Replace the facts of this folder; after a crash there are the old ones or the new ones."""
    write_atomically(folder / FACTS_FILE, orjson.dumps({"format": FORMAT} | asdict(facts)))


def write_atomically(path: Path, content: bytes) -> None:
    """Write the file so that it is there as a whole or not at all, also after a power cut."""
    draft = path.with_name(path.name + ".tmp")
    with open(draft, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_path(path.parent)


def sync_path(path: str | Path) -> None:
    """Wait until what was written to this file or folder is on the disk; nothing happens when it is gone."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """`sync_path` for all files and folders below."""
    for root, _, names in os.walk(folder):
        for name in names:
            sync_path(os.path.join(root, name))
        sync_path(root)


def _parse(raw: dict[str, Any]) -> Facts:
    if raw["format"] != FORMAT:
        raise ValueError(raw["format"])
    return Facts(Collection(**raw["collection"]), str(raw["shard"]), int(raw["num_dead"]))
