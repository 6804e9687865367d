"""A disk that fills up during a run: one clear line, and the next run ends as if there had been room."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import wait_for_chunks

pytestmark = pytest.mark.integration

EMBEDCTL = str(Path(sys.executable).with_name("embedctl"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs rights that this user or container lacks")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environ = os.environ | {"EMBEDCTL_HOME": str(home), "EMBEDCTL_STORE_IDLE_S": "1"}
    return subprocess.Popen(
        [EMBEDCTL, *arguments], env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def embedctl(home: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(home, *arguments)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def fill(folder: Path) -> Path:
    """Take all the room that is left."""
    path = folder / "filler"
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    return path


def test_a_full_disk_is_one_clear_line_and_loses_nothing(small_disk, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    with corpus.open("w") as file:
        for number in range(3000):
            text = f"{number:05} " + " ".join(f"word{(number * 7 + i) % 1000}" for i in range(50))
            file.write(json.dumps({"_id": str(number), "text": text}) + "\n")
    home = small_disk / "home"
    code, _, err = embedctl(
        home, "models", "add", "v1", "dummy:64@50", "--chunk-tokens", "500", "--overlap", "0"
    )
    assert code == 0, err

    process = start(home, "index", str(corpus), "--json")
    wait_for_chunks(home)
    filler = fill(small_disk)
    _, err = process.communicate(timeout=240)
    filler.unlink()
    after, out, later_err = embedctl(home, "index", str(corpus), "--json")

    assert process.returncode == 1
    assert "Traceback" not in err
    assert "free some" in err.strip().splitlines()[-1]
    assert after == 0, later_err
    report = json.loads(out)["runs"][0]
    assert (report["state"], report["documents"]["seen"], report["documents"]["failed"]) == ("done", 3000, 0)


def test_a_home_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")

    code, _, err = embedctl(tmp_path / "file" / "home", "status")

    assert (code, err.count("\n")) == (1, 1)
    assert "cannot be made" in err
