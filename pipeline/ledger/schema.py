"""Bring a ledger's schema to the revision that this code expects, or say that it is not."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from embedctl.pipeline.errors import LedgerError
from embedctl.pipeline.ledger.database import Database

#: The newest revision in migrations/versions; a test keeps it in step.
HEAD = "0001"
#: Any constant of our own: upgrades of one PostgreSQL database wait for each other on it.
UPGRADE_LOCK = 0x656D6265


def current_revision(db: Database) -> str | None:
    """The revision of the database, None when it is empty."""
    with db.read() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return revision


def upgrade(db: Database) -> None:
    """Migrate to HEAD. Two upgrades at once wait for each other. Nothing is imported when there is nothing to
    do."""
    if db.path is not None:
        _make_folder(db.path.parent)
    with db.translated(), _upgrade_lock(db):
        revision = current_revision(db)
        if revision == HEAD:
            return
        if revision is not None and revision > HEAD:
            raise LedgerError(
                f"The ledger {db.name} was made by a newer embedctl (revision {revision}); upgrade embedctl."
            )
        _run_alembic(db)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise LedgerError(f"The ledger's folder {folder} cannot be made: {exc.strerror}.") from exc


def _run_alembic(db: Database) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "embedctl:migrations")
    with db.engine.connect().execution_options(is_write=True) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def _upgrade_lock(db: Database) -> Iterator[None]:
    if db.path is not None:
        # around the very first connection, too: it turns a new file to WAL, and SQLite lets nobody wait for
        # that
        with _file_lock(db.path.with_suffix(".upgrade.lock")):
            yield
        return
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        _advisory(connection, "pg_advisory_lock")
        try:
            yield
        finally:
            _advisory(connection, "pg_advisory_unlock")


def _advisory(connection: Connection, function: str) -> None:
    connection.execute(text(f"SELECT {function}(:key)"), {"key": UPGRADE_LOCK})


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as exc:
        raise LedgerError(f"The ledger's folder {path.parent} cannot be written to: {exc.strerror}.") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
