"""What tests of real command processes share."""

import time
from pathlib import Path

from embedctl.pipeline.ledger.ledger import Ledger


def wait_for_chunks(home: Path) -> None:
    """Until a run that is under way has embedded something. home: the folder that commands work in, or
    `.embedctl` itself."""
    folder = home / ".embedctl" if (home / ".embedctl").is_dir() else home
    ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}")
    deadline = time.monotonic() + 60
    while not any(run.chunks_embedded for run in ledger.runs.list(only_open=True)):
        assert time.monotonic() < deadline, "no run got as far as embedding"
        time.sleep(0.05)
    ledger.close()
