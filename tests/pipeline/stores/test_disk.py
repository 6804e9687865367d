"""Full disks and damaged files: refused in a sentence, and what was acknowledged stays."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from embedctl.pipeline.errors import DiskFull, StoreError
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.stores.frames import Frame
from embedctl.pipeline.stores.service import answer


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the disk have that many bytes left."""

    def fill(free: int) -> None:
        usage = shutil.disk_usage("/")._replace(free=free)
        monkeypatch.setattr("embedctl.pipeline.stores.disk.shutil.disk_usage", lambda path: usage)

    return fill


def test_a_full_disk_refuses_writes_before_they_do_harm_and_reads_go_on(
    folder: Path, make: Any, fill_disk: Callable[[int], None]
) -> None:
    store = EdgeStore(folder / "store")
    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(5))

    fill_disk(30 << 20)
    with pytest.raises(DiskFull, match="30 MiB left"):
        store.upsert(make.collection, make.points(5, doc_id="b.md"))
    with pytest.raises(DiskFull):
        store.create_collection(make.second)

    assert store.count(make.collection) == 5
    assert not store.has_collection(make.second.name)
    fill_disk(1 << 40)
    store.upsert(make.collection, make.points(5, doc_id="b.md"))
    assert store.count(make.collection) == 10
    store.close()


def test_what_the_system_refuses_in_the_process_reaches_the_client_as_a_sentence(make: Any) -> None:
    class Store:
        def __init__(self, number: int) -> None:
            self.number = number

        def count(self, collection: Any, source: Any) -> int:
            raise OSError(self.number, "refused", "/data/store")

    request = Frame({"op": "count", "collection": asdict(make.collection), "source": None})
    for number, name in [
        (errno.ENOSPC, b"DiskFull"),
        (errno.EROFS, b"StoreError"),
        (errno.EIO, b"StoreError"),
    ]:
        header, _ = answer(Store(number), request)  # type: ignore[arg-type]
        assert name in header
        assert b"/data/store" in header


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "collection": {}, "shard": "x"}']
)
def test_damaged_facts_are_named(folder: Path, make: Any, content: bytes) -> None:
    store = EdgeStore(folder / "store")
    store.create_collection(make.collection)
    store.close()
    (folder / "store" / make.collection.name / "collection.json").write_bytes(content)

    store = EdgeStore(folder / "store")

    with pytest.raises(StoreError, match="damaged"):
        store.count(make.collection)
    store.close()


def test_a_collection_whose_removal_was_interrupted_stays_removed(folder: Path, make: Any) -> None:
    store = EdgeStore(folder / "store")
    store.create_collection(make.collection)
    store.close()
    (folder / "store" / make.collection.name).rename(folder / "store" / ".dropped-1")

    store = EdgeStore(folder / "store")

    assert not store.has_collection(make.collection.name)
    assert not (folder / "store" / ".dropped-1").exists()
    store.close()
