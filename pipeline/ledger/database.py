"""The connection to the ledger's database: transactions, translated errors, migrations."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from embedctl.pipeline.errors import DiskFull, LedgerBusy, LedgerError

#: How long a transaction waits for another writer before it is LedgerBusy.
BUSY_TIMEOUT_S = 30.0


class Database:
    """Transactions on the ledger's database. Thread-safe; after a fork make a new one.

    url: `sqlite:///path` or `postgresql://...` (psycopg).
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError as exc:
            raise LedgerError(
                "database_url is not a database URL; use sqlite:///path or postgresql://..."
            ) from exc
        self.name = parsed.render_as_string(hide_password=True)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.path = Path(parsed.database) if self.is_sqlite and parsed.database else None
        self.engine = create_engine(parsed, pool_pre_ping=not self.is_sqlite, hide_parameters=True)
        if self.is_sqlite:
            _prepare_sqlite(self.engine)

    @contextmanager
    def write(self, *, is_durable: bool = False) -> Iterator[Connection]:
        """A short write transaction; on SQLite it holds the write lock from the start, so it never has to
        upgrade.

        is_durable: wait until it would survive a power cut. Without, SQLite may forget the newest
        transactions then, though never a part of one; PostgreSQL keeps all.
        """
        options = {"is_write": True, "is_durable": is_durable}
        with (
            self.translated(),
            self.engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: one snapshot on SQLite, read committed on PostgreSQL."""
        with self.translated(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Driver errors leave as LedgerBusy, DiskFull or LedgerError, each in one line."""
        try:
            yield
        except DBAPIError as exc:
            raise _translate(exc, self.name) from exc
        except PoolTimeout as exc:  # all connections wait for that other writer
            raise LedgerBusy(_busy(self.name)) from exc
        except sqlite3.Error as exc:
            raise LedgerError(f"The ledger {self.name} cannot be used: {exc}.") from exc

    def insert(self, table: Table) -> Any:
        """The dialect's INSERT, which knows `on_conflict_do_update` and `on_conflict_do_nothing`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def close(self) -> None:
        self.engine.dispose()


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN is deferred: an upgrade would fail at once
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_S * 1000)}")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        # KiB per connection: what is read again is in the system's cache
        cursor.execute("PRAGMA cache_size=-1024")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        is_write, is_durable = options.get("is_write", False), options.get("is_durable", False)
        connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _translate(exc: DBAPIError, name: str) -> Exception:
    cause = exc.orig
    reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    lowered = reason.lower()
    if "is locked" in lowered or "deadlock" in lowered or "serialize" in lowered:
        return LedgerBusy(_busy(name))
    if "is full" in lowered or "no space" in lowered:
        return DiskFull(f"No space is left for the ledger {name}; free some and run again, nothing is lost.")
    if "disk i/o" in lowered:
        return LedgerError(f"The ledger {name} cannot be read or written; check the disk and its free space.")
    if "readonly" in lowered or "read-only" in lowered:
        return LedgerError(f"The ledger {name} is read-only; make its folder writable.")
    if "unable to open" in lowered:
        return LedgerError(
            f"The ledger {name} cannot be opened; check that its folder exists and is writable."
        )
    if "not a database" in lowered or "malformed" in lowered:
        return LedgerError(f"The ledger {name} is damaged ({reason}); restore it from a backup.")
    return LedgerError(f"The ledger {name} cannot be used: {reason}.")


def _busy(name: str) -> str:
    return f"The ledger {name} is locked by another process for over {BUSY_TIMEOUT_S:.0f} s."
