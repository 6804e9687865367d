"""Runs of `index` without files and models: documents given as records, a dummy engine, the real ledger and
store."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from embedctl.engine.dummy import DummyEngine, Fault
from embedctl.pipeline.chunking import Chunking
from embedctl.pipeline.document import Document, Draw, Unreadable
from embedctl.pipeline.indexing import Target, index_source
from embedctl.pipeline.report import RunReport
from embedctl.pipeline.session import Session
from embedctl.pipeline.settings import load_settings
from embedctl.pipeline.stores.base import Hit, VectorStore
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.version import OpenVersion, define_version, open_version

DIM = 16


@dataclass(frozen=True)
class Record:
    """A document to be: what a reader would find."""

    doc_id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reader: str = "text/1"


class RecordSource:
    """Yields records in order; an Unreadable as it is. Calls `on_read` after each item, as a file changes
    while it is read."""

    def __init__(self, items: Sequence[Record | Unreadable], on_read: Any = None) -> None:
        self._items = items
        self._on_read = on_read

    def read(self, draw: Draw) -> Iterator[Document | Unreadable]:
        for position, item in enumerate(self._items):
            if isinstance(item, Unreadable):
                yield item
            else:
                yield Document(item.doc_id, position, draw(), item.text, item.reader, item.metadata)
            if self._on_read is not None:
                self._on_read(item)


class FaultyVersion(OpenVersion):
    """A version whose engine is the dummy that the test made."""

    def __init__(self, opened: OpenVersion, settings: Any, engine: DummyEngine) -> None:
        super().__init__(opened.version, opened.spec, settings)
        self.dummy = engine

    def engine(self) -> DummyEngine:
        return self.dummy

    def close(self) -> None:
        """The test looks at its counters afterwards."""


class Rehearsal:
    """One home; every `index` is a command of its own with a session of its own."""

    def __init__(self, folder: Path, *, in_process: bool = True, **settings: str) -> None:
        """in_process: the store without its process, which saves a second per test and changes nothing
        else."""
        self.folder = folder
        self.in_process = in_process
        self.environ = {f"EMBEDCTL_{name.upper()}": value for name, value in settings.items()}
        with self.session() as session:
            define_version(session, "v1", f"dummy:{DIM}", chunking=Chunking.of("tokens", 32, 0))

    def session(self, store: VectorStore | None = None) -> Session:
        session = Session(load_settings(self.folder, self.environ))
        if store is None and self.in_process:
            store = EdgeStore(session.settings.home / "store")
        if store is not None:
            session.__dict__["store"] = store
        return session

    def index(
        self,
        items: Sequence[Record | Unreadable],
        *,
        label: str = "notes",
        fault: Fault | None = None,
        delay_s: float | None = None,
        max_prune: float = 1.0,
        store: VectorStore | None = None,
        on_read: Any = None,
        stop: threading.Event | None = None,
        version: str = "v1",
    ) -> "Rehearsed":
        with self.session(store) as session:
            opened = open_version(session, version)
            engine = DummyEngine(opened.spec, fault=fault, delay_s=delay_s)
            row = session.ledger.collections.ensure("docs", version)
            session.ledger.sources.bind("docs", label, self.folder / label)
            target = Target(session.catalog.describe(row), FaultyVersion(opened, session.settings, engine))
            report = index_source(
                session,
                target,
                label,
                RecordSource(items, on_read),
                max_prune=max_prune,
                stop=stop or threading.Event(),
                on_progress=lambda progress: None,
            )
        return Rehearsed(report, engine)

    def points(self, source: str = "notes", version: str = "v1") -> list[Hit]:
        """All points of a source, by a search that is wide enough."""
        with self.session() as session:
            collection = session.catalog.collection(f"docs__{version}")
            found = session.store.search(collection, np.ones(DIM, np.float32), 10_000, {"source": source})
            assert len(found) == session.store.count(collection, source)
            return sorted(found, key=lambda hit: (hit.payload["doc_id"], hit.payload["ordinal"]))

    def texts(self, doc_id: str, source: str = "notes") -> list[str]:
        return [hit.payload["text"] for hit in self.points(source) if hit.payload["doc_id"] == doc_id]

    def contents(self, source: str = "notes") -> list[tuple[Any, ...]]:
        """What is in the store, without what differs between two ways to the same end (generations and
        ids)."""
        keys = ("doc_id", "ordinal", "start", "end", "text", "input_hash", "metadata", "version", "space")
        return [tuple(hit.payload[key] for key in keys) for hit in self.points(source)]


@dataclass(frozen=True)
class Rehearsed:
    """The report of one run and the engine that it used."""

    report: RunReport
    engine: DummyEngine

    @property
    def num_engine_calls(self) -> int:
        return self.engine.num_requests

    @property
    def documents(self) -> dict[str, int]:
        counts: dict[str, int] = self.report.to_json()["documents"]
        return counts

    @property
    def chunks(self) -> dict[str, int]:
        counts: dict[str, int] = self.report.to_json()["chunks"]
        return counts


def paragraphs(number: int, salt: str = "") -> str:
    """A text of so many paragraphs, each about one chunk of 32 byte tokens and unlike the others."""
    return "\n\n".join(f"{salt}{i:03d} paragraph of a text." for i in range(number))


def add_up(documents: Mapping[str, int]) -> bool:
    """True when the outcomes of a run's documents are as many as were seen."""
    outcomes = ("embedded", "unchanged", "payload_only", "empty", "duplicate", "failed")
    return documents["seen"] == sum(documents[name] for name in outcomes)
