"""The ledger's database under contention, and every way in which it can be unusable."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from embedctl.pipeline.errors import LedgerError
from embedctl.pipeline.ledger.ledger import Ledger

WRITER = """
import sys
from embedctl.pipeline.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    ledger.draw_observation()
"""


def _writer(url: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(number)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.integration
def test_eight_writing_processes_and_a_reader_meet_no_lock_error_and_lose_no_count(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url)
    writers = [_writer(url, 250) for _ in range(8)]

    while any(writer.poll() is None for writer in writers):
        ledger.now()

    assert [writer.returncode for writer in writers] == [0] * 8
    assert ledger.draw_observation() == 8 * 250 + 1
    with ledger.db.read() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    ledger.close()
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()


@pytest.mark.integration
def test_a_kill_during_writes_leaves_a_sound_ledger(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with _writer(url, 100_000) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        writer.send_signal(signal.SIGKILL)

    ledger = Ledger(url)
    before = ledger.draw_observation()
    assert ledger.draw_observation() == before + 1
    with ledger.db.read() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    ledger.close()


def test_a_damaged_ledger_is_one_clear_line(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"this is no database, " * 500)

    with pytest.raises(LedgerError, match=r"damaged.*restore it from a backup") as caught:
        Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert "\n" not in str(caught.value)


def test_a_ledger_in_a_folder_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(LedgerError):
        Ledger(f"sqlite:///{tmp_path / 'file' / 'ledger.db'}")


def test_a_password_never_appears_in_an_error():
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://user:s3cret@127.0.0.1:1/nowhere")
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only files")
def test_a_read_only_ledger_says_so(tmp_path: Path):
    path = tmp_path / "ledger.db"
    Ledger(f"sqlite:///{path}").close()
    path.chmod(0o400)

    ledger = Ledger(f"sqlite:///{path}")
    with pytest.raises(LedgerError, match="read-only"):
        ledger.draw_observation()


def test_a_lock_held_for_too_long_is_an_error_that_may_pass(tmp_path, monkeypatch):
    from embedctl.pipeline.errors import LedgerBusy
    from embedctl.pipeline.ledger import database

    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.1)
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(LedgerBusy, match="locked by another process") as caught:
        ledger.draw_observation()

    assert caught.value.retryable
    other.execute("ROLLBACK")
    other.close()
    with ledger.db.read() as connection:
        connection.execute(select(1))
    ledger.close()


def test_more_threads_than_connections_behind_a_lock_are_an_error_that_may_pass(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.db.engine.pool._timeout = 0.1
    held = [ledger.db.engine.connect() for _ in range(15)]

    with pytest.raises(LedgerError) as caught:
        ledger.draw_observation()

    for connection in held:
        connection.close()
    ledger.close()
    assert caught.value.retryable
