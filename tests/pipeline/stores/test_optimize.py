"""Optimising on a copy: all points stay, writes win, a crash at any step leaves one good shard."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedctl.pipeline.stores.base import DocumentLimit
from embedctl.pipeline.stores.edge import EdgeStore
from embedctl.pipeline.stores.facts import read_facts
from embedctl.pipeline.stores.optimize import Optimizer


@pytest.fixture
def edge_store(folder: Path, make: Any) -> Iterator[EdgeStore]:
    """6,000 points that are searched one by one."""
    store = EdgeStore(folder / "store")
    # large enough for Edge to build a graph: its threshold counts kilobytes of vectors
    make.use_dim(64)
    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(6000))
    yield store
    store.close()


@pytest.fixture
def optimizer(edge_store: EdgeStore) -> Iterator[Optimizer]:
    optimizer = Optimizer(edge_store, threshold=5000, quiet_s=0)
    yield optimizer
    optimizer.close()


def num_indexed(store: EdgeStore) -> int:
    (shard,) = store.shards()
    return shard.use(lambda opened: opened.info().indexed_vectors_count)


def test_an_optimised_copy_takes_over_with_all_points_and_results(
    edge_store: EdgeStore, optimizer: Optimizer, make: Any, folder: Path, wait_until: Callable[..., None]
) -> None:
    queries = make.vectors(5, seed=7)
    before = [edge_store.search(make.collection, query, 10) for query in queries]

    optimizer.tick()
    assert optimizer.is_busy
    assert edge_store.search(make.collection, queries[0], 10) == before[0]
    wait_until(lambda: optimizer.tick() or not optimizer.is_busy)

    assert num_indexed(edge_store) == 6000
    assert edge_store.count(make.collection) == 6000
    after = [edge_store.search(make.collection, query, 10) for query in queries]
    overlap = [
        len({h.point_id for h in a} & {h.point_id for h in b}) for a, b in zip(before, after, strict=True)
    ]
    assert np.mean(overlap) >= 9
    assert len(list((folder / "store" / make.collection.name).glob("shard-*"))) == 1

    edge_store.upsert(make.collection, make.points(10, doc_id="new.md"))
    edge_store.delete_older(make.collection, [DocumentLimit("corpus", "a.md", 2)])
    assert edge_store.count(make.collection) == 10


def test_it_is_kept_over_a_restart(
    edge_store: EdgeStore, optimizer: Optimizer, make: Any, folder: Path, wait_until: Callable[..., None]
) -> None:
    wait_until(lambda: optimizer.tick() or num_indexed(edge_store) == 6000)
    edge_store.close()

    store = EdgeStore(folder / "store")

    assert store.count(make.collection) == 6000
    assert num_indexed(store) == 6000
    store.close()


def test_a_write_meanwhile_wins_and_the_copy_goes(
    edge_store: EdgeStore, optimizer: Optimizer, make: Any, folder: Path
) -> None:
    optimizer.tick()
    assert optimizer.is_busy

    edge_store.upsert(make.collection, make.points(10, doc_id="new.md"))
    optimizer.tick()

    assert not optimizer.is_busy
    assert edge_store.count(make.collection) == 6010
    assert len(list((folder / "store" / make.collection.name).glob("shard-*"))) == 1


def test_small_and_busy_shards_are_left_alone(edge_store: EdgeStore) -> None:
    for threshold, quiet_s in [(7000, 0.0), (5000, 3600.0)]:
        optimizer = Optimizer(edge_store, threshold, quiet_s)
        optimizer.tick()
        assert not optimizer.is_busy


def test_deleted_points_are_a_reason_too_and_remembered_over_a_restart(
    edge_store: EdgeStore, make: Any, folder: Path
) -> None:
    edge_store.delete_older(make.collection, [DocumentLimit("corpus", "a.md", 2)])
    edge_store.close()

    store = EdgeStore(folder / "store")
    assert store.count(make.collection) == 0

    assert store.shards()[0].needs_optimizing(6000)
    assert not store.shards()[0].needs_optimizing(6001)
    store.close()


def test_a_copy_that_lost_points_is_not_used(edge_store: EdgeStore, make: Any, folder: Path) -> None:
    (shard,) = edge_store.shards()
    num_writes = shard.copy_to(folder / "store" / make.collection.name / "shard-copy")
    other = EdgeStore(folder / "other")
    other.create_collection(make.collection)
    other.close()
    shutil.rmtree(folder / "store" / make.collection.name / "shard-copy")
    empty = folder / "other" / make.collection.name / "shard-1"
    path = empty.rename(folder / "store" / make.collection.name / "shard-copy")

    with pytest.raises(Exception, match="not all of its points"):
        shard.exchange(path, num_writes)

    assert edge_store.count(make.collection) == 6000


def test_what_a_killed_optimisation_left_is_removed_at_the_next_opening(
    edge_store: EdgeStore, make: Any, folder: Path
) -> None:
    home = folder / "store" / make.collection.name
    edge_store.shards()[0].copy_to(home / "shard-half")
    shutil.rmtree(home / "shard-half" / "segments")
    edge_store.close()

    store = EdgeStore(folder / "store")

    assert store.count(make.collection) == 6000
    assert [path.name for path in home.glob("shard-*")] == [read_facts(home).shard]  # type: ignore[union-attr]
    store.close()
