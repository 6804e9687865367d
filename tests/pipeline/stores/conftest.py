"""Stores to test, the records to put into them, and store processes that end with their test."""

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pytest

from embedctl.pipeline.errors import StoreError
from embedctl.pipeline.stores.address import Address
from embedctl.pipeline.stores.base import Collection, Points, VectorStore
from embedctl.pipeline.stores.client import StoreClient
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.stores.frames import PROTOCOL, receive_frame, send_frame

DIM = 8


class Maker:
    """Makes collections and points whose vectors follow from a seed."""

    def __init__(self) -> None:
        name = f"docs-{uuid.uuid4().hex[:8]}__v1"
        self.collection = Collection(name, "docs", "v1", "space-1", "ledger-1", DIM)

    def use_dim(self, dim: int) -> None:
        self.collection = replace(self.collection, dim=dim)

    def variants(self) -> list[Collection]:
        """The collections that tests make of this one."""
        dot, moved = replace(self.collection, metric="dot"), replace(self.collection, space="space-2")
        return [self.collection, dot, moved, self.second]

    @property
    def second(self) -> Collection:
        name = self.collection.name.replace("v1", "v2")
        return replace(self.collection, name=name, version="v2", space="space-2")

    def vectors(self, num_points: int, seed: int = 0) -> np.ndarray:
        vectors = np.random.default_rng(seed).standard_normal(
            (num_points, self.collection.dim), dtype=np.float32
        )
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def points(
        self,
        num_points: int,
        source: str = "corpus",
        doc_id: str = "a.md",
        generation: int = 1,
        seed: int = 0,
        **payload: Any,
    ) -> Points:
        """One document's chunks."""
        keys = [f"{source}/{doc_id}/{generation}/{ordinal}" for ordinal in range(num_points)]
        fields = {"source": source, "doc_id": doc_id, "generation": generation} | payload
        return Points(
            ids=[str(uuid.uuid5(uuid.NAMESPACE_URL, key)) for key in keys],
            vectors=self.vectors(num_points, seed),
            payloads=[
                fields | {"ordinal": n, "text": f"chunk {n}", "input_hash": f"h{n}"}
                for n in range(num_points)
            ],
        )


class Processes:
    """Store processes by folder."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()

    def hello(self, folder: Path, owner: str = "test", protocol: Any = PROTOCOL) -> tuple[socket.socket, Any]:
        """A raw connection, and the answer to its hello. Raises OSError when no process serves the folder."""
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        try:
            peer.connect(os.fspath(Address.of(folder).socket))
            send_frame(peer, orjson.dumps({"hello": protocol, "version": "0", "owner": owner}))
            reply = receive_frame(peer)
            if reply is None:
                raise ConnectionResetError("the process is ending")
        except BaseException:
            peer.close()
            raise
        return peer, reply.header

    def pid(self, folder: Path) -> int:
        peer, reply = self.hello(folder)
        peer.close()
        return int(reply["result"]["pid"])

    def kill(self, folder: Path, sent: signal.Signals = signal.SIGKILL) -> None:
        """Send the signal and wait for the end."""
        process = psutil.Process(self.pid(folder))
        process.send_signal(sent)
        process.wait(30)

    def end_all(self) -> None:
        for folder in self.folders:
            try:
                self.kill(folder, signal.SIGTERM)
            except (OSError, psutil.NoSuchProcess):
                continue


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.end_all()


def new_folder() -> Path:
    """An embedctl folder whose socket's path is short; in memory if possible: the store syncs a lot."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    return Path(tempfile.mkdtemp(prefix="ectl-", dir=memory)) / ".embedctl"


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = new_folder()
    yield folder
    shutil.rmtree(folder.parent, ignore_errors=True)


@pytest.fixture
def open_client(folder: Path, processes: Processes) -> Iterator[Callable[..., StoreClient]]:
    """Opens clients of the folder's store process; they are closed, and it ends, with the test."""
    clients: list[StoreClient] = []

    def open_client(owner: str = "owner-1", folder: Path = folder, **options: Any) -> StoreClient:
        processes.folders.add(folder)
        clients.append(StoreClient(folder, owner, **options))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()
    processes.end_all()


@pytest.fixture
def client(open_client: Callable[..., StoreClient]) -> StoreClient:
    return open_client()


@pytest.fixture(scope="session")
def stores() -> Iterator[dict[str, VectorStore]]:
    """One of each kind for all tests of the contract: each test has collections of its own."""
    edge, served, processes = new_folder(), new_folder(), Processes()
    processes.folders.add(served)
    stores: dict[str, VectorStore] = {
        "edge": EdgeStore(edge / "store"),
        "process": StoreClient(served, "contract"),
    }
    yield stores
    for store in stores.values():
        store.close()
    processes.end_all()
    for folder in (edge, served):
        shutil.rmtree(folder.parent, ignore_errors=True)


@pytest.fixture
def shared(stores: dict[str, VectorStore]) -> StoreClient:
    """A client of the process that all tests share; for those that do it no harm."""
    client = stores["process"]
    assert isinstance(client, StoreClient)
    return client


@pytest.fixture(params=["edge", "process"])
def store(
    request: pytest.FixtureRequest, stores: dict[str, VectorStore], make: Maker
) -> Iterator[VectorStore]:
    store = stores[request.param]
    yield store
    for collection in make.variants():
        with contextlib.suppress(StoreError):
            store.drop_collection(collection)


def wait_until(is_true: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., None]:
    return wait_until
