"""Who holds a lease: a process on a host, named so that others on the host can tell whether it still
lives."""

import os
import socket
import sys
import uuid
from functools import cache

import psutil


@cache
def _host() -> str:
    # two containers may share a host name, their process ids belong to different namespaces
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}/{namespace}"


def new_owner() -> str:
    """A name for this process, unique also when its process id is used again: host|pid|started|random."""
    return f"{_host()}|{os.getpid()}|{_started(os.getpid())}|{uuid.uuid4().hex[:8]}"


def is_known_dead(owner: str) -> bool:
    """True when the owner's process was on this host and is gone. False says nothing: it may live, or live
    elsewhere."""
    try:
        host, pid, started, _ = owner.rsplit("|", 3)
    except ValueError:
        return False
    if host != _host():
        return False
    try:
        is_zombie = psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
        return is_zombie or _started(int(pid)) != started
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return True
    except (psutil.Error, OSError):
        return False


def _started(pid: int) -> str:
    """When the process started, by a clock that nobody sets: a living one must not seem to be another.

    The time of day, which psutil gives, moves with every correction of the system's clock.
    """
    if not sys.platform.startswith("linux"):
        return f"{psutil.Process(pid).create_time():.2f}"
    # after the command's name, which may hold anything: field 22 of proc(5), in ticks since the start of the
    # machine
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def describe(owner: str) -> str:
    """The owner for people: "process 4711 on host"."""
    host, pid, *_ = owner.rsplit("|", 3)
    return f"process {pid} on {host.partition('/')[0]}"
