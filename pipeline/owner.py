"""Who holds a lease: a process on a host, named so that others on the host can tell whether it still
lives."""

import os
import socket
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
    process = psutil.Process()
    return f"{_host()}|{process.pid}|{process.create_time():.2f}|{uuid.uuid4().hex[:8]}"


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
        process = psutil.Process(int(pid))
        return f"{process.create_time():.2f}" != started or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def describe(owner: str) -> str:
    """The owner for people: "process 4711 on host"."""
    host, pid, *_ = owner.rsplit("|", 3)
    return f"process {pid} on {host.partition('/')[0]}"
