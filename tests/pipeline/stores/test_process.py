"""The store process: started when needed, shared, killed, replaced."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from embedctl.pipeline.errors import StoreError, StoreUnavailable
from embedctl.pipeline.stores.address import Address
from embedctl.pipeline.stores.client import StoreClient
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.stores.process import bound_log


def test_the_first_request_starts_the_process_and_later_clients_share_it(
    open_client: Callable[..., StoreClient], folder: Path, processes: Any, make: Any
) -> None:
    first, second = open_client("one"), open_client("two")

    first.create_collection(make.collection)
    pid = processes.pid(folder)
    second.upsert(make.collection, make.points(3))

    assert first.count(make.collection) == 3
    assert processes.pid(folder) == pid


def test_many_starters_at_once_end_up_with_one_process(
    open_client: Callable[..., StoreClient], folder: Path, make: Any
) -> None:
    clients = [open_client(f"owner-{n}") for n in range(3)]
    failed: list[BaseException] = []

    def create(client: StoreClient) -> None:
        try:
            client.create_collection(make.collection)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=create, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failed
    assert folder.joinpath("store.log").read_text().count("Serving") == 1


def test_an_upsert_is_all_there_after_the_process_was_killed_and_the_client_carries_on(
    client: StoreClient, folder: Path, processes: Any, make: Any
) -> None:
    client.create_collection(make.collection)

    for number in range(3):
        client.upsert(make.collection, make.points(200, doc_id=f"{number}.md", seed=number))
        processes.kill(folder)

    assert client.count(make.collection) == 600
    points = make.points(200, doc_id="1.md", seed=1)
    assert client.search(make.collection, points.vectors[7], 1)[0].point_id == points.ids[7]


def test_kills_in_the_middle_of_writing_lose_nothing_that_was_acknowledged(
    client: StoreClient, folder: Path, processes: Any, make: Any, wait_until: Any
) -> None:
    client.create_collection(make.collection)
    acknowledged: list[str] = []

    def write() -> None:
        for number in range(60):
            client.upsert(make.collection, make.points(40, doc_id=f"{number}.md", seed=number))
            acknowledged.append(f"{number}.md")

    writer = threading.Thread(target=write)
    writer.start()
    for num_before in (5, 20, 40):
        wait_until(lambda enough=num_before: len(acknowledged) >= enough or not writer.is_alive())
        processes.kill(folder)
    writer.join()

    assert len(acknowledged) == 60
    assert all(client.count_document(make.collection, "corpus", doc_id) == 40 for doc_id in acknowledged)
    assert client.count(make.collection) == 2400


def test_an_unfinished_collection_of_a_killed_process_is_made_anew(folder: Path, make: Any) -> None:
    store = EdgeStore(folder / "store")
    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(3))
    store.close()
    (folder / "store" / make.collection.name / "collection.json").unlink()

    store = EdgeStore(folder / "store")

    assert not store.has_collection(make.collection.name)
    store.create_collection(make.collection)
    assert store.count(make.collection) == 0
    store.close()


def test_searching_goes_on_while_another_client_writes(
    open_client: Callable[..., StoreClient], make: Any
) -> None:
    writer, reader = open_client("writer"), open_client("reader")
    writer.create_collection(make.collection)
    first = make.points(50)
    writer.upsert(make.collection, first)
    is_done = threading.Event()

    def write() -> None:
        for number in range(15):
            writer.upsert(make.collection, make.points(100, doc_id=f"{number}.md", seed=number + 1))
        is_done.set()

    thread = threading.Thread(target=write)
    thread.start()
    num_searches = 0
    while not is_done.is_set() or not num_searches:
        assert reader.search(make.collection, first.vectors[3], 1)[0].point_id == first.ids[3]
        num_searches += 1
    thread.join()

    assert reader.count(make.collection) == 1550


def test_the_process_ends_when_nobody_was_connected_for_a_while_and_comes_back(
    open_client: Callable[..., StoreClient], folder: Path, processes: Any, make: Any, wait_until: Any
) -> None:
    client = open_client(idle_s=0.2)
    client.create_collection(make.collection)
    client.upsert(make.collection, make.points(5))
    process = psutil.Process(processes.pid(folder))

    client.close()

    wait_until(lambda: not process.is_running())
    assert client.count(make.collection) == 5


def test_a_connected_client_keeps_the_process(
    open_client: Callable[..., StoreClient], folder: Path, processes: Any, make: Any
) -> None:
    client = open_client(idle_s=0.2)
    client.create_collection(make.collection)
    pid = processes.pid(folder)

    time.sleep(1.5)

    client.count(make.collection)
    assert processes.pid(folder) == pid


def test_terminated_it_closes_the_store_and_the_next_request_starts_another(
    client: StoreClient, folder: Path, processes: Any, make: Any
) -> None:
    client.create_collection(make.collection)
    client.upsert(make.collection, make.points(5))

    processes.kill(folder, signal.SIGTERM)

    assert not Address.of(folder).socket.exists()
    store = EdgeStore(folder / "store")
    assert store.count(make.collection) == 5
    store.close()
    assert client.count(make.collection) == 5


def test_a_process_whose_folder_was_removed_ends(
    client: StoreClient, folder: Path, processes: Any, make: Any, wait_until: Any
) -> None:
    client.create_collection(make.collection)
    process = psutil.Process(processes.pid(folder))

    folder.joinpath("store.sock").unlink()

    wait_until(lambda: not process.is_running())


def test_a_long_folder_name_with_spaces_and_unicode_works(
    open_client: Callable[..., StoreClient], tmp_path: Path, make: Any
) -> None:
    folder = tmp_path / ("Größe und Länge " * 8) / ".embedctl"
    client = open_client(folder=folder)

    client.create_collection(make.collection)

    assert client.has_collection(make.collection.name)
    private = client.address.socket.parent
    assert private.stat().st_mode & 0o077 == 0
    assert private.parent == Path("/tmp")


def test_only_the_user_can_open_socket_and_store(shared: StoreClient, make: Any) -> None:
    shared.create_collection(make.collection)

    for path in (shared.address.folder / "store.sock", shared.address.folder / "store"):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"ECS1\xff\xff\xff\xff\xff\xff\xff\xff",
        b"ECS1\x02\0\0\0\0\0\0\0[]",
        b"EC",
        b"",
    ],
)
def test_garbage_on_the_socket_hurts_nobody(
    shared: StoreClient, processes: Any, make: Any, garbage: bytes
) -> None:
    shared.create_collection(make.collection)
    pid = processes.pid(shared.address.folder)

    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(os.fspath(shared.address.socket))
        peer.sendall(garbage)
        peer.shutdown(socket.SHUT_WR)
        # cut off without an answer; what it had not read yet makes that a reset
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""

    assert shared.count(make.collection) == 0
    assert processes.pid(shared.address.folder) == pid


def test_a_broken_request_after_a_good_hello_is_answered_or_cut_off(
    shared: StoreClient, processes: Any, make: Any
) -> None:
    shared.create_collection(make.collection)

    for header in (b'{"op": "nonsense"}', b'{"op": "count"}', b'{"op": "upsert", "collection": 7}', b"{}"):
        peer, _ = processes.hello(shared.address.folder)
        peer.sendall(b"ECS1" + len(header).to_bytes(4, "little") + bytes(4) + header)
        assert b'"error"' in peer.recv(1000)
        peer.close()

    assert shared.count(make.collection) == 0


def test_a_client_of_another_release_is_told_what_to_do(
    shared: StoreClient, processes: Any, make: Any
) -> None:
    shared.create_collection(make.collection)

    peer, reply = processes.hello(shared.address.folder, protocol=99)

    assert "speaks 99" in reply["error"]["message"]
    assert peer.recv(1) == b""
    peer.close()


def test_the_folder_cannot_be_opened_a_second_time(shared: StoreClient, make: Any) -> None:
    shared.create_collection(make.collection)

    with pytest.raises(StoreUnavailable, match="another process"):
        EdgeStore(shared.address.folder / "store")


def test_a_process_that_cannot_start_is_reported_with_its_last_words_and_its_log(
    open_client: Callable[..., StoreClient], folder: Path, make: Any
) -> None:
    folder.mkdir(parents=True)
    folder.joinpath("store").write_text("a file where the store's folder should be")

    with pytest.raises(StoreUnavailable, match=r"cannot be used.*store\.log"):
        open_client().create_collection(make.collection)


def test_a_process_that_always_dies_is_given_up_and_its_log_is_named(
    shared: StoreClient, processes: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.create_collection(make.collection)
    monkeypatch.setattr("embedctl.pipeline.stores.client.BACKOFF_S", 0.001)
    monkeypatch.setattr(shared, "_take", lambda: (_ for _ in ()).throw(ConnectionResetError("gone")))

    with pytest.raises(StoreUnavailable, match=r"went away.*store\.log") as caught:
        shared.count(make.collection)

    assert caught.value.retryable


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(
    open_client: Callable[..., StoreClient], folder: Path, make: Any
) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("not a folder")

    with pytest.raises(StoreError, match=r"\.embedctl cannot be used"):
        open_client().create_collection(make.collection)


WRITER = """
import sys, time
from pathlib import Path
import numpy as np, uuid
from embedctl.pipeline.stores.base import Collection, Points
from embedctl.pipeline.stores.client import StoreClient

client = StoreClient(Path(sys.argv[1]), "dying")
collection = Collection(sys.argv[2], "docs", "v1", "space-1", "ledger-1", 8)
vectors = np.ones((256, 8), np.float32)
while True:
    ids = [str(uuid.uuid4()) for _ in vectors]
    client.upsert(collection, Points(ids, vectors, [{"source": "dying", "doc_id": "d"}] * 256))
    print("written", flush=True)
"""


def test_a_killed_writer_has_ended_only_when_nothing_of_it_can_arrive_any_more(
    client: StoreClient, folder: Path, make: Any, wait_until: Any
) -> None:
    client.create_collection(make.collection)

    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(folder), make.collection.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            assert not client.has_ended("dying")
            writer.kill()
        wait_until(lambda: client.has_ended("dying"))
        settled = client.count(make.collection, "dying")
        time.sleep(0.2)
        assert client.count(make.collection, "dying") == settled


def test_requests_end_with_their_process(
    client: StoreClient, open_client: Callable[..., StoreClient], folder: Path, processes: Any, make: Any
) -> None:
    other = open_client("other")
    other.create_collection(make.collection)
    assert not client.has_ended("other")

    processes.kill(folder)

    assert client.has_ended("other")


def test_what_a_dead_client_left_in_the_socket_is_done_before_it_counts_as_ended(
    shared: StoreClient, processes: Any, make: Any, wait_until: Any
) -> None:
    shared.create_collection(make.collection)
    peer, _ = processes.hello(shared.address.folder, owner="left")
    header = b'{"op": "drop_collection", "collection": %s}' % orjson.dumps(make.collection)

    peer.sendall(b"ECS1" + len(header).to_bytes(4, "little") + bytes(4) + header)
    peer.close()
    wait_until(lambda: shared.has_ended("left"))

    assert not shared.has_collection(make.collection.name)


def test_the_log_stays_bounded(tmp_path: Path) -> None:
    log = tmp_path / "store.log"
    with log.open("ab") as writing:
        writing.write(b"x" * 3000)
        writing.flush()
        bound_log(log, max_bytes=2000)
        writing.write(b"y")

    assert log.read_bytes() == b"y"
    assert log.with_name("store.log.1").stat().st_size == 3000


def test_a_socket_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedctl.pipeline.stores.address.SHARED_TEMP", tmp_path)
    shared = tmp_path / f"embedctl-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)

    with pytest.raises(StoreError, match="only you can open"):
        Address.of(tmp_path / ("x" * 120)).prepare()
