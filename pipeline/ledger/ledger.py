"""The ledger as one object: the record of runs, batches, documents and versions, and the truth about
progress."""

import uuid

from sqlalchemy import select

from embedctl.pipeline.ledger.batches import Batches
from embedctl.pipeline.ledger.clock import now
from embedctl.pipeline.ledger.collections import Collections
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.documents import Documents
from embedctl.pipeline.ledger.failures import Failures
from embedctl.pipeline.ledger.maintenance import Maintenance
from embedctl.pipeline.ledger.observations import draw_observation
from embedctl.pipeline.ledger.runs import Runs
from embedctl.pipeline.ledger.schema import upgrade
from embedctl.pipeline.ledger.sources import Sources
from embedctl.pipeline.ledger.tables import ledger
from embedctl.pipeline.ledger.totals import CollectionTotals
from embedctl.pipeline.ledger.versions import Versions


class Ledger:
    """Opens the ledger and brings its schema up to date. Thread-safe."""

    def __init__(self, url: str) -> None:
        self.db = Database(url)
        upgrade(self.db)
        self.id = self._identify()
        self.versions = Versions(self.db)
        self.collections = Collections(self.db)
        self.sources = Sources(self.db)
        self.runs = Runs(self.db)
        self.documents = Documents(self.db)
        self.batches = Batches(self.db)
        self.failures = Failures(self.db)
        self.totals = CollectionTotals(self.db)
        self.maintenance = Maintenance(self.db)

    def _identify(self) -> str:
        with self.db.read() as connection:
            ledger_id: str | None = connection.scalar(select(ledger.c.ledger_id))
        if ledger_id is not None:
            return ledger_id
        with self.db.write() as connection:
            row = {"id": 1, "ledger_id": uuid.uuid4().hex, "tick_owner": "", "tick_until": 0.0}
            connection.execute(self.db.insert(ledger).values(row).on_conflict_do_nothing())
            return str(connection.scalar(select(ledger.c.ledger_id)))

    def draw_observation(self) -> int:
        """The next observation number. Drawn before bytes are opened, it dates what is read from them."""
        with self.db.write() as connection:
            return draw_observation(connection)

    def now(self) -> float:
        """The database's time in seconds since 1970."""
        with self.db.read() as connection:
            return float(connection.scalar(select(now())) or 0.0)

    def close(self) -> None:
        self.db.close()
