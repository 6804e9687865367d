"""A ledger on each dialect, with one version, one collection and helpers to plan and work in it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select, update

from embedctl.pipeline.document import Document
from embedctl.pipeline.ledger.batches import BatchResult, ClaimedBatch, DeadChunk
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.documents import Decision, DocumentRow, NewBatch, Plan, Window
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.ledger.schema import upgrade
from embedctl.pipeline.ledger.tables import batches, metadata, stragglers
from embedctl.pipeline.ledger.versions import Version

VERSION = Version("v1", "ab" * 8, {"dimensions": 4, "metric": "cosine"}, {"strategy": "none"}, "dummy", {})
#: A process on another host: nobody here can know that it is dead.
ELSEWHERE = "another-host|1|1.00|aaaaaaaa"


@dataclass
class Bench:
    """One collection `docs__v1` and one source `notes`, driven by hand."""

    ledger: Ledger
    owner: str = ELSEWHERE
    positions: dict[str, int] = field(default_factory=dict)

    def open_run(self, owner: str | None = None) -> Run:
        return self.ledger.runs.open("docs__v1", "notes", owner or self.owner, 60.0)[0]

    def document(
        self, doc_id: str, text: str, observation: int | None = None, position: int | None = None
    ) -> Document:
        number = self.ledger.draw_observation() if observation is None else observation
        place = self.positions.setdefault(doc_id, len(self.positions)) if position is None else position
        return Document(doc_id, place, number, text, "text/1")

    def plan(self, run: Run, document: Document, num_chunks: int = 1, *, per_batch: int = 100) -> None:
        """Plan a document at its next generation, cut into batches of `per_batch` chunks."""
        row = self.row(document.doc_id)
        plan = Plan(document, Decision.EMBED, (row.generation if row else 0) + 1, num_chunks)
        sizes = [min(per_batch, num_chunks - start) for start in range(0, num_chunks, per_batch)]
        new = [NewBatch(document.doc_id.encode(), size, 10 * size) for size in sizes]
        self.ledger.documents.write(run, Window(plans=[plan], batches=new))

    def claim(self, run: Run, owner: str | None = None, lease_s: float = 60.0) -> ClaimedBatch:
        claim = self.ledger.batches.claim(owner or self.owner, lease_s, [run.id])
        assert claim is not None
        return claim

    def complete(self, run: Run, claim: ClaimedBatch, generation: int, *, dead: tuple[int, ...] = ()) -> None:
        doc_id = claim.payload.decode()
        chunks = [DeadChunk(doc_id, generation, ordinal, "embed", "it always raises") for ordinal in dead]
        result = BatchResult(
            {(doc_id, generation): claim.num_chunks}, chunks, claim.num_chunks - len(dead), 0, 0
        )
        self.ledger.batches.complete(claim, run, result)

    def index(self, run: Run, doc_id: str, text: str, num_chunks: int = 1) -> None:
        """Plan and work a document to its end."""
        self.plan(run, self.document(doc_id, text), num_chunks)
        row = self.row(doc_id)
        assert row is not None
        self.complete(run, self.claim(run), row.generation)
        self.clean()

    def clean(self) -> None:
        self.ledger.maintenance.mark_clean(self.ledger.maintenance.to_clean())

    def row(self, doc_id: str) -> DocumentRow | None:
        return self.ledger.documents.rows("docs__v1", "notes", [doc_id]).get(doc_id)

    def state(self, doc_id: str) -> str:
        row = self.row(doc_id)
        return row.state if row else "none"

    def expire_leases(self) -> None:
        with self.ledger.db.write() as connection:
            connection.execute(update(batches).values(lease_until=1.0))

    def num_batches(self) -> int:
        with self.ledger.db.read() as connection:
            return len(connection.execute(select(batches.c.id)).all())

    def straggler_ids(self) -> list[str]:
        with self.ledger.db.read() as connection:
            return sorted(connection.scalars(select(stragglers.c.doc_id)))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite ledger to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("ledger") / "template.db"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path


@pytest.fixture(scope="session")
def migrated_postgres(new_database: Callable[[], str]) -> str:
    url = new_database()
    database = Database(url)
    upgrade(database)
    database.close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty ledger: the same promises on both dialects."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    url: str = request.getfixturevalue("migrated_postgres")
    database = Database(url)
    with database.write() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    database.close()
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger(ledger_url)
    yield opened
    opened.close()


@pytest.fixture
def bench(ledger: Ledger) -> Bench:
    ledger.versions.bind(VERSION)
    ledger.collections.ensure("docs", "v1")
    return Bench(ledger)
