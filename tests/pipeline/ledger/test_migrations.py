"""Migrations: up, down and up again on both dialects, in step with the tables, safe when two start at
once."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from embedctl.pipeline.errors import LedgerError
from embedctl.pipeline.ledger.database import Database
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.schema import HEAD, current_revision, upgrade
from embedctl.pipeline.ledger.tables import metadata


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'new folder' / 'ledger.db'}"
    else:
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        url = new_database()
    opened = Database(url)
    yield opened
    opened.close()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "embedctl:migrations")
    return config


def test_the_head_that_the_code_expects_is_the_newest_revision():
    assert ScriptDirectory.from_config(_config()).get_heads() == [HEAD]


def test_upgrade_downgrade_upgrade_leaves_exactly_the_tables_of_the_code(database):
    upgrade(database)
    config = _config()
    with database.engine.connect().execution_options(is_write=True) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
        connection.rollback()
    upgrade(database)

    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        checks = {
            check["name"]
            for table in metadata.tables
            for check in inspect(connection).get_check_constraints(table)
        }
    assert {"ck_runs_state_known", "ck_documents_state_known", "ck_ledger_single"} <= checks
    assert current_revision(database) == HEAD


def test_two_upgrades_at_once_both_succeed(database):
    errors: list[BaseException] = []

    def run() -> None:
        other = Database(database.engine.url.render_as_string(hide_password=False))
        try:
            upgrade(other)
        except BaseException as exc:
            errors.append(exc)
        finally:
            other.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert current_revision(database) == HEAD


def test_a_ledger_of_a_newer_embedctl_is_refused(database):
    upgrade(database)
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(LedgerError, match="newer embedctl"):
        upgrade(database)


def test_first_commands_that_start_at_once_share_one_ledger(tmp_path: Path):
    """Turning a new SQLite file to WAL is the one moment at which nobody can wait for another."""
    for number in range(8):
        url = f"sqlite:///{tmp_path / str(number) / 'ledger.db'}"
        ids: list[str] = []
        errors: list[BaseException] = []

        def start(url: str = url, ids: list[str] = ids, errors: list[BaseException] = errors) -> None:
            try:
                ledger = Ledger(url)
                ids.append(ledger.id)
                ledger.close()
            except BaseException as exc:
                errors.append(exc)

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        assert len(ids) == 4
        assert len(set(ids)) == 1
