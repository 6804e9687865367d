"""kill -9 of the command and of the store process at random moments: a last run ends as if nothing had
happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import wait_for_chunks

from embedctl.pipeline.ledger.ledger import Ledger

pytestmark = pytest.mark.integration

#: Times the command or the store process dies before the last run.
NUM_KILLS = 20
#: Milliseconds that the dummy model takes per step: long enough for kills to meet work of every kind.
DELAY_MS = 25
#: And where a run has to be still under way when the test looks.
SLOW_MS = 1000
SEED = 20261129


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Texts of very different lengths; some are equal, some repeat a paragraph."""
    folder = tmp_path / "corpus"
    chooser = random.Random(SEED)
    for number in range(150):
        length = chooser.choice((0, 1, 3, 10, 60))
        text = "\n\n".join(
            f"{chooser.randrange(200):03} a paragraph of document {number % 90}." for _ in range(length)
        )
        path = folder / f"{number % 7}" / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def embedctl(home: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    environ = os.environ | {
        "EMBEDCTL_HOME": str(home / ".embedctl"),
        "EMBEDCTL_BATCH_TOKENS": "1024",
        "EMBEDCTL_STORE_IDLE_S": "5",
    }
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("embedctl")), *arguments],
        cwd=home,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def run(home: Path, *arguments: str) -> str:
    code, out, err = finish(embedctl(home, *arguments))
    assert code == 0, err
    return out


def start(home: Path, delay_ms: int = DELAY_MS) -> None:
    home.mkdir(exist_ok=True)
    run(home, "models", "add", "v1", f"dummy:16@{delay_ms}", "--chunk-tokens", "48", "--overlap", "0")


def store_process(home: Path) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "embedctl.pipeline.stores.process" in words and str(home / ".embedctl") in " ".join(words):
            return process
    return None


def contents(home: Path) -> list[tuple[object, ...]]:
    """Every point, without what may differ between two ways to the same end."""
    import numpy as np

    from embedctl.pipeline.session import Session
    from embedctl.pipeline.settings import load_settings

    with Session(load_settings(home, {"EMBEDCTL_HOME": str(home / ".embedctl")})) as session:
        collection = session.catalog.collection("docs__v1")
        found = session.store.search(collection, np.ones(16, np.float32), 10_000)
        assert len(found) == session.store.count(collection)
    keys = ("doc_id", "ordinal", "start", "end", "text", "input_hash")
    return sorted(tuple(hit.payload[key] for key in keys) for hit in found)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[None]:
    yield
    for name in ("calm", "stormy"):
        if process := store_process(tmp_path / name):
            process.kill()


def test_twenty_kills_of_command_and_store_end_as_an_undisturbed_run(tmp_path, corpus, stopped):
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    start(calm)
    undisturbed = json.loads(run(calm, "index", str(corpus), "--json"))["runs"][0]
    start(stormy)
    chooser = random.Random(SEED)

    for number in range(NUM_KILLS):
        process = embedctl(stormy, "index", str(corpus), "--json")
        time.sleep(chooser.uniform(0.8, 3.0))
        if number % 2 and (victim := store_process(stormy)) is not None:
            victim.send_signal(signal.SIGKILL)
            time.sleep(chooser.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    code, out, err = finish(embedctl(stormy, "index", str(corpus), "--json"))

    assert code == 0, err
    last = json.loads(out)["runs"][0]
    assert contents(stormy) == contents(calm)
    assert last["state"] == undisturbed["state"] == "done"
    seen, expected = last["documents"], undisturbed["documents"]
    assert seen["seen"] == expected["seen"]
    # the last command may find all done, empty documents too: a kill can come after the end of a run
    assert seen["embedded"] + seen["empty"] + seen["unchanged"] == expected["embedded"] + expected["empty"]
    assert (seen["failed"], seen["pruned"]) == (0, 0)
    ledger = Ledger(f"sqlite:///{stormy / '.embedctl' / 'ledger.db'}")
    assert ledger.failures.list() == []
    assert ledger.batches.backlog() == {}
    ledger.close()


def test_the_store_process_killed_again_and_again_costs_the_run_nothing_but_time(tmp_path, corpus, stopped):
    calm = tmp_path / "calm"
    start(calm)
    process = embedctl(calm, "index", str(corpus), "--json")
    num_killed = 0
    while process.poll() is None and num_killed < 5:
        time.sleep(0.7)
        if victim := store_process(calm):
            victim.send_signal(signal.SIGKILL)
            num_killed += 1

    code, out, err = finish(process)

    assert code == 0, err
    report = json.loads(out)["runs"][0]
    assert report["documents"]["failed"] == 0
    assert len(contents(calm)) == report["chunks"]["embedded"] + report["chunks"]["reused"]


def test_ctrl_c_stops_at_the_next_step_and_says_how_to_go_on(tmp_path, corpus, stopped):
    calm = tmp_path / "calm"
    start(calm, SLOW_MS)
    process = embedctl(calm, "index", str(corpus))
    wait_for_chunks(calm)
    process.send_signal(signal.SIGINT)

    code, _, err = finish(process)

    assert code == 130
    assert "The same command goes on where it stopped" in err
    assert "Traceback" not in err
    [run_status] = json.loads(run(calm, "status", "--json"))["runs"]
    assert "stopped" in run_status["activity"]


def test_a_second_index_of_the_same_source_is_refused_in_one_line_while_search_goes_on(
    tmp_path, corpus, stopped
):
    calm = tmp_path / "calm"
    start(calm, SLOW_MS)
    first = embedctl(calm, "index", str(corpus))
    wait_for_chunks(calm)

    code, _, err = finish(embedctl(calm, "index", str(corpus)))
    searched = finish(embedctl(calm, "search", "a paragraph", "--model", "v1", "--json"))

    assert first.poll() is None
    assert (code, err.count("\n")) == (1, 1)
    assert "is being indexed" in err
    assert searched[0] == 0
    assert json.loads(searched[1])["hits"]
    first.send_signal(signal.SIGTERM)
    assert finish(first)[0] == 130
