"""Collections by name, with all that a store checks before it lets one write or search there."""

import threading

from embedctl.pipeline.errors import CollectionMissing
from embedctl.pipeline.ledger.collections import CollectionRow
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.stores.base import Collection


class Catalog:
    """What the ledger says about collections; remembered, as a label never comes to mean something else."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._known: dict[str, Collection] = {}

    def collection(self, name: str) -> Collection:
        """Raises CollectionMissing when the ledger has none of this name."""
        with self._lock:
            if name not in self._known:
                row = self._ledger.collections.find(name)
                if row is None:
                    raise CollectionMissing(f"There is no collection {name!r} in the ledger.")
                self._known[name] = self.describe(row)
            return self._known[name]

    def describe(self, row: CollectionRow) -> Collection:
        version = self._ledger.versions.get(row.version)
        return Collection(
            name=row.name,
            index=row.index,
            version=row.version,
            space=version.space_id,
            ledger=self._ledger.id,
            dim=int(version.space["dimensions"]),
            metric=str(version.space["metric"]),
        )
