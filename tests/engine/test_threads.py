"""How many threads a CPU step gets."""

import pytest

from embedctl.engine import threads
from embedctl.engine.threads import num_usable_cores


def system(tmp_path, siblings, **cgroup):
    for cpu, names in enumerate(siblings):
        folder = tmp_path / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(names + "\n")
    for name, text in cgroup.items():
        path = tmp_path / "cgroup" / name.replace("__", "/").replace("_us", "_us")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "cpu", tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("siblings", "affinity", "cores"),
    [
        (["0", "1"], {0, 1}, 2),
        (["0,2", "1,3", "0,2", "1,3"], {0, 1, 2, 3}, 2),
        (["0,2", "1,3", "0,2", "1,3"], {0, 2}, 1),
        ([], {0, 1, 2}, 3),
    ],
)
def test_hyperthreads_of_one_core_and_cores_of_others_do_not_count(
    tmp_path, monkeypatch, siblings, affinity, cores
):
    monkeypatch.setattr(threads, "_affinity", lambda: affinity)

    assert num_usable_cores(*system(tmp_path, siblings)) == cores


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("1600000 100000", 8),
    ],
)
def test_a_container_uses_no_more_threads_than_its_quota(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(threads, "_affinity", lambda: set(range(8)))
    folders = system(tmp_path, [str(cpu) for cpu in range(8)], **{"cpu.max": quota})

    assert num_usable_cores(*folders) == cores


def test_the_quota_of_version_1_control_groups_counts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_affinity", lambda: set(range(8)))
    files = {"cpu__cpu.cfs_quota_us": "300000", "cpu__cpu.cfs_period_us": "100000"}

    assert num_usable_cores(*system(tmp_path, [], **files)) == 3
