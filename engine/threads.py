"""How many threads one CPU step should use."""

import os
from pathlib import Path

_CPU_FOLDER = Path("/sys/devices/system/cpu")
_CGROUP_FOLDER = Path("/sys/fs/cgroup")


def num_usable_cores(cpu_folder: Path = _CPU_FOLDER, cgroup_folder: Path = _CGROUP_FOLDER) -> int:
    """Physical cores that this process may use: affinity, without hyperthreads, capped by the cgroup's quota.

    Two hyperthreads of one core share the units that matrix products saturate, so a second thread there only
    costs.
    """
    cpus = _affinity()
    cores = {_siblings(cpu_folder, cpu) for cpu in cpus}
    return max(1, min(len(cores), _quota(cgroup_folder) or len(cores)))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(cpu_folder: Path, cpu: int) -> str:
    """Names the physical core of a logical one; itself where the system does not say."""
    try:
        return (cpu_folder / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(cgroup_folder: Path) -> int | None:
    """Whole cores of the control group's CPU quota (version 2, else 1), rounded up; None without one."""
    try:
        if (version_2 := cgroup_folder / "cpu.max").exists():
            quota, period = version_2.read_text().split()
        else:
            quota = (cgroup_folder / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroup_folder / "cpu/cpu.cfs_period_us").read_text()
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    except (OSError, ValueError):  # no quota, or "max"
        return None
