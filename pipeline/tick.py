"""The one maintenance step: reap, clean, sweep, close. Idempotent; whoever waits or works calls it."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from embedctl.pipeline.catalog import Catalog
from embedctl.pipeline.ledger.batches import ClaimedBatch
from embedctl.pipeline.ledger.documents import NewBatch
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.maintenance import Cleaning, Straggler
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.owner import is_known_dead
from embedctl.pipeline.stores.base import Collection, DocumentLimit, VectorStore

logger = logging.getLogger(__name__)

#: The tick's own lease: longer than a tick takes, short enough to wait for after a power cut.
TICK_LEASE_S = 30.0

#: Cleaning goes on in the next tick after so long: who ticks has a lease of its own to keep.
CLEAN_S = 5.0

Item = TypeVar("Item", Cleaning, Straggler)


@dataclass(frozen=True)
class Tick:
    """Maintenance of all collections of one store."""

    ledger: Ledger
    store: VectorStore
    catalog: Catalog
    owner: str
    request_timeout_s: float

    def __call__(self) -> bool:
        """Do what is due; False when another process is at it."""
        if not self.ledger.maintenance.acquire(self.owner, TICK_LEASE_S):
            return False
        self.reap()
        self.clean()
        self.sweep()
        self.close_runs()
        return True

    def reap(self) -> None:
        """Batches of lost workers go back to the queue, split: a death is never the batch's fault until an
        error says so."""
        for batch in self.ledger.maintenance.lost_batches():
            run = self.ledger.runs.get(batch.run_id)
            payload = self.ledger.maintenance.payload(batch)
            if run is not None and payload is not None:
                self._put_back(batch, run, payload)

    def _put_back(self, batch: ClaimedBatch, run: Run, payload: bytes) -> None:
        from embedctl.pipeline.payload import (  # Arrow only when it is needed
            decode_chunks,
            encode_chunks,
            halve,
        )

        chunks = decode_chunks(payload)
        pieces = [
            NewBatch(encode_chunks(piece), len(piece), sum(chunk.num_tokens for chunk in piece))
            for piece in halve(chunks)
        ]
        doc_ids = [chunk.document.doc_id for chunk in chunks]
        if self.ledger.maintenance.reap(batch, run, pieces, doc_ids, self.request_timeout_s):
            logger.info(
                "Batch %d lost its worker and is queued again in %d parts",
                batch.id,
                len(pieces),
                extra={"action": "batch_reaped", "run_id": run.id},
            )

    def clean(self) -> None:
        """Delete what newer generations have replaced, now that those are acknowledged."""
        until = time.monotonic() + CLEAN_S
        while due := self.ledger.maintenance.to_clean():
            self._delete(due, lambda item: item.generation)
            self.ledger.maintenance.mark_clean(due)
            if time.monotonic() > until:
                return

    def sweep(self) -> None:
        """Delete what attempts that are over wrote for old generations."""
        ended = [item for item in self.ledger.maintenance.stragglers() if self._has_ended(item)]
        if ended:
            self._delete(ended, lambda item: item.served)
            self.ledger.maintenance.forget(ended)

    def _has_ended(self, item: Straggler) -> bool:
        # in this order: once the process is gone, the store's answer stays true. A living one may be without
        # a connection and make its request yet
        return item.is_over or (is_known_dead(item.owner) and self.store.has_ended(item.owner))

    def close_runs(self) -> None:
        for run_id in self.ledger.maintenance.closable_runs():
            run = self.ledger.runs.get(run_id)
            if run is not None and run.is_open:
                self._close(run)

    def _close(self, run: Run) -> None:
        collection = self.catalog.collection(run.collection)
        expected, partial = self.ledger.maintenance.num_stored(run)
        found = self.store.count(collection, run.source)
        found -= sum(self.store.count_document(collection, run.source, doc_id) for doc_id in partial)
        if found != expected and self._mark_damaged(run, collection):
            return  # it closes at a later tick, with these documents among its failures
        if self.ledger.maintenance.close(run, found - expected):
            logger.info(
                "Index %s is live at %s",
                collection.index,
                collection.version,
                extra={"action": "collection_live", "run_id": run.id},
            )

    def _mark_damaged(self, run: Run, collection: Collection) -> bool:
        """Find the documents whose points are not those of the ledger, and have them indexed again."""
        damaged = [
            item
            for item in self.ledger.maintenance.settled_documents(run)
            if self.store.count_document(collection, run.source, item.doc_id) != item.num_stored
        ]
        if damaged:
            logger.warning("%d documents are not in the store as they should be", len(damaged))
            self.ledger.maintenance.mark_damaged(run, damaged)
        return bool(damaged)

    def _delete(self, items: Sequence[Item], below: Callable[[Item], int]) -> None:
        by_collection: dict[str, list[DocumentLimit]] = defaultdict(list)
        for item in items:
            limit = DocumentLimit(item.source, item.doc_id, below(item))
            if limit.generation > 0:
                by_collection[item.collection].append(limit)
        for name, limits in by_collection.items():
            self.store.delete_older(self.catalog.collection(name), limits)
