"""Whether the holder of a lease still lives."""

import subprocess
import sys

import psutil

from embedctl.pipeline.owner import is_known_dead, new_owner


def test_a_process_is_alive_until_it_has_ended():
    code = "from embedctl.pipeline.owner import new_owner; print(new_owner(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        owner = process.stdout.readline().strip()
        assert not is_known_dead(owner)
        process.kill()
        process.wait()

    assert is_known_dead(owner)


def test_a_process_id_that_is_used_again_is_another_process():
    host, pid, started, unique = new_owner().rsplit("|", 3)

    assert is_known_dead(f"{host}|{pid}|{float(started) - 1}|{unique}")


def test_a_living_process_does_not_seem_dead_when_the_clock_is_set(monkeypatch):
    owner = new_owner()
    at_start = psutil.boot_time()

    # the start of the machine is told by the clock of now
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: at_start + 3600.0)

    assert not is_known_dead(owner)


def test_what_happens_elsewhere_is_not_known():
    assert not is_known_dead("another-host|1|1|aaaaaaaa")
    assert not is_known_dead("no owner at all")
