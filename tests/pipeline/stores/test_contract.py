"""What every vector store promises."""

import time
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from embedctl.pipeline.errors import CollectionMissing, ForeignCollection, StoreError, StoreUnavailable
from embedctl.pipeline.stores.base import DocumentLimit, Points, VectorStore


def test_a_collection_is_there_once_it_was_made_and_making_it_again_changes_nothing(
    store: VectorStore, make: Any
) -> None:
    assert not store.has_collection(make.collection.name)

    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(3))
    store.create_collection(make.collection)

    assert store.has_collection(make.collection.name)
    assert store.count(make.collection) == 3


def test_a_dropped_collection_is_gone_and_can_be_made_for_another_space(
    store: VectorStore, make: Any
) -> None:
    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(3))

    store.drop_collection(make.collection)

    assert not store.has_collection(make.collection.name)
    other = replace(make.collection, space="space-2")
    store.create_collection(other)
    assert store.count(other) == 0


REQUESTS: list[Any] = [
    pytest.param(lambda store, collection, make: store.upsert(collection, make.points(1)), id="upsert"),
    pytest.param(
        lambda store, collection, make: store.delete_older(collection, [DocumentLimit("corpus", "a.md", 9)]),
        id="delete",
    ),
    pytest.param(lambda store, collection, make: store.count(collection), id="count"),
    pytest.param(
        lambda store, collection, make: store.count_document(collection, "corpus", "a.md"),
        id="count_document",
    ),
    pytest.param(
        lambda store, collection, make: store.find_vectors(collection, "corpus", "a.md", ["h0"]), id="find"
    ),
    pytest.param(
        lambda store, collection, make: store.search(collection, make.vectors(1)[0], 3), id="search"
    ),
    pytest.param(lambda store, collection, make: store.drop_collection(collection), id="drop"),
]


@pytest.mark.parametrize("request_to", REQUESTS)
def test_a_collection_that_was_never_made_is_missed_by_name(
    store: VectorStore, make: Any, request_to: Any
) -> None:
    with pytest.raises(CollectionMissing, match=make.collection.name):
        request_to(store, make.collection, make)


@pytest.mark.parametrize(
    "request_to", [*REQUESTS, pytest.param(lambda s, c, make: s.create_collection(c), id="create")]
)
def test_a_foreign_collection_is_refused_also_at_equal_dimension(
    store: VectorStore, make: Any, request_to: Any
) -> None:
    store.create_collection(make.collection)
    store.upsert(make.collection, make.points(2))

    for difference in [
        {"space": "space-2"},
        {"ledger": "ledger-2"},
        {"version": "v2"},
        {"index": "x"},
        {"metric": "dot"},
    ]:
        (key,) = difference
        with pytest.raises(ForeignCollection, match=key):
            request_to(store, replace(make.collection, **difference), make)

    assert store.count(make.collection) == 2


def test_an_upsert_replaces_points_of_equal_id(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(3)

    store.upsert(make.collection, points)
    store.upsert(
        make.collection, replace(points, payloads=[{"source": "corpus", "doc_id": "a.md", "n": 7}] * 3)
    )

    assert store.count(make.collection) == 3
    assert store.search(make.collection, points.vectors[0], 1)[0].payload["n"] == 7


def test_of_an_id_twice_in_one_upsert_the_last_one_stays(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(2)

    store.upsert(make.collection, replace(points, ids=[points.ids[0]] * 2))

    (hit,) = store.search(make.collection, points.vectors[1], 5)
    assert hit.payload["ordinal"] == 1


def test_equal_texts_under_different_ids_are_points_of_their_own(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(11)

    store.upsert(make.collection, replace(points, vectors=np.repeat(points.vectors[:1], 11, axis=0)))

    assert store.count_document(make.collection, "corpus", "a.md") == 11


def test_counts_are_exact_per_source_and_document(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    for source, doc_id, num_points in [("one", "a", 700), ("one", "b", 2), ("two", "a", 5)]:
        store.upsert(make.collection, make.points(num_points, source=source, doc_id=doc_id))

    assert store.count(make.collection) == 707
    assert store.count(make.collection, "one") == 702
    assert store.count(make.collection, "two") == 5
    assert store.count(make.collection, "three") == 0
    assert store.count_document(make.collection, "one", "a") == 700
    assert store.count_document(make.collection, "two", "b") == 0


def test_only_strictly_older_generations_of_exactly_these_documents_are_deleted(
    store: VectorStore, make: Any
) -> None:
    store.create_collection(make.collection)
    for source, doc_id, generation in [
        ("s", "a", 1),
        ("s", "a", 2),
        ("s", "a", 3),
        ("s", "b", 1),
        ("t", "a", 1),
    ]:
        store.upsert(make.collection, make.points(4, source=source, doc_id=doc_id, generation=generation))

    store.delete_older(make.collection, [DocumentLimit("s", "a", 3), DocumentLimit("s", "never", 9)])

    assert store.count_document(make.collection, "s", "a") == 4
    assert {
        hit.payload["generation"]
        for hit in store.search(make.collection, make.vectors(1)[0], 50, {"doc_id": "a", "source": "s"})
    } == {3}
    assert store.count_document(make.collection, "s", "b") == 4
    assert store.count_document(make.collection, "t", "a") == 4


def test_a_shrunk_document_leaves_nothing_of_its_longer_self(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    long = make.points(10, generation=1, seed=1)
    store.upsert(make.collection, long)

    store.upsert(make.collection, make.points(3, generation=2, seed=2))
    store.delete_older(make.collection, [DocumentLimit("corpus", "a.md", 2)])

    assert store.count(make.collection) == 3
    assert all(hit.payload["generation"] == 2 for hit in store.search(make.collection, long.vectors[9], 10))


def test_deletes_of_many_documents_in_one_request(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    for number in range(3):
        store.upsert(make.collection, make.points(2, doc_id=f"{number}.md"))

    store.delete_older(
        make.collection, [DocumentLimit("corpus", f"{number}.md", 2) for number in range(2500)]
    )
    store.delete_older(make.collection, [])

    assert store.count(make.collection) == 0


def test_stored_vectors_are_found_by_input_hash(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(1500)
    store.upsert(make.collection, points)
    store.upsert(make.collection, make.points(1, doc_id="other.md", seed=5))

    found = store.find_vectors(
        make.collection, "corpus", "a.md", [f"h{n}" for n in range(1400)] + ["unknown"]
    )

    assert set(found) == {f"h{n}" for n in range(1400)}
    assert all(found[f"h{n}"].dtype == np.float32 for n in range(1400))
    np.testing.assert_allclose(found["h7"], points.vectors[7], atol=1e-6)
    assert store.find_vectors(make.collection, "corpus", "a.md", []) == {}


def test_search_gives_the_nearest_first_with_their_payloads(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(200)
    store.upsert(make.collection, points)
    query = make.vectors(1, seed=9)[0]

    hits = store.search(make.collection, query, 10)

    expected = np.argsort(-(points.vectors @ query))[:10]
    assert [hit.point_id for hit in hits] == [points.ids[n] for n in expected]
    np.testing.assert_allclose([hit.score for hit in hits], (points.vectors @ query)[expected], atol=1e-5)
    assert hits[0].payload == points.payloads[expected[0]]


def test_dot_scores_keep_the_vectors_lengths(store: VectorStore, make: Any) -> None:
    dot = replace(make.collection, metric="dot")
    store.create_collection(dot)
    points = make.points(2)
    vectors = np.stack([points.vectors[0], 3 * points.vectors[0]])

    store.upsert(dot, replace(points, vectors=vectors))

    hits = store.search(dot, points.vectors[0], 2)
    np.testing.assert_allclose([hit.score for hit in hits], [3, 1], atol=1e-5)
    np.testing.assert_allclose(store.find_vectors(dot, "corpus", "a.md", ["h1"])["h1"], vectors[1], atol=1e-6)


@pytest.mark.parametrize(
    ("equals", "ordinals"),
    [
        ({"ordinal": 1}, {1}),
        ({"metadata.lang": "de"}, {2}),
        ({"metadata.draft": True}, {0}),
        ({"metadata.draft": False}, {1}),
        ({"metadata.score": 0.5}, {1}),
        ({"metadata.nothing": None}, {0}),
        ({"metadata.two words.Größe": 3}, {2}),
        ({"metadata.tags": "x"}, {0}),
        ({"metadata.lang": "de", "ordinal": 1}, set()),
        ({"metadata.lang": ""}, set()),
    ],
)
def test_search_is_limited_to_equal_payload_values(
    store: VectorStore, make: Any, equals: dict[str, Any], ordinals: set[int]
) -> None:
    store.create_collection(make.collection)
    points = make.points(3)
    metadata: list[dict[str, Any]] = [
        {"draft": True, "nothing": None, "tags": ["x", "y"]},
        {"draft": False, "score": 0.5},
        {"lang": "de", "two words": {"Größe": 3}},
    ]
    payloads = [dict(p) | {"metadata": m} for p, m in zip(points.payloads, metadata, strict=True)]
    store.upsert(make.collection, replace(points, payloads=payloads))

    hits = store.search(make.collection, points.vectors[0], 10, equals)

    assert {hit.payload["ordinal"] for hit in hits} == ordinals


@pytest.mark.parametrize("equals", [{"": 1}, {"a..b": 1}, {'a"b': 1}, {"a": [1]}, {"a": {"b": 1}}])
def test_what_cannot_be_compared_is_refused_in_a_sentence(store: VectorStore, make: Any, equals: Any) -> None:
    store.create_collection(make.collection)

    with pytest.raises(StoreError, match="field"):
        store.search(make.collection, make.vectors(1)[0], 1, equals)


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([float("nan")] + [1.0] * 7, "not finite"),
        ([float("inf")] + [1.0] * 7, "not finite"),
        ([0.0] * 8, "no length"),
        ([1e-30] * 8, "no length"),
        ([1.0] * 7, "8 dimensions"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_refused_by_point(
    store: VectorStore, make: Any, vector: list[float], reason: str
) -> None:
    store.create_collection(make.collection)
    points = make.points(2)
    vectors = np.array([[1.0] * len(vector), vector], np.float32)

    with pytest.raises(StoreError, match=reason) as caught:
        store.upsert(make.collection, replace(points, vectors=vectors))

    assert any(point_id in str(caught.value) for point_id in points.ids)
    assert store.count(make.collection) == 0
    with pytest.raises(StoreError, match=reason):
        store.search(make.collection, np.array(vector, np.float32), 1)


@pytest.mark.parametrize("point_id", ["1", "not-a-uuid", "{" + str(uuid.uuid4()) + "}", uuid.uuid4().hex])
def test_an_id_that_is_no_uuid_is_refused_by_name(store: VectorStore, make: Any, point_id: str) -> None:
    store.create_collection(make.collection)

    with pytest.raises(StoreError, match="UUID"):
        store.upsert(make.collection, replace(make.points(1), ids=[point_id]))


def test_an_upsert_larger_than_any_request_arrives_whole(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(1500)
    payloads = [dict(payload) | {"text": "x" * 20_000} for payload in points.payloads]

    store.upsert(make.collection, replace(points, payloads=payloads))

    assert store.count(make.collection) == 1500
    assert len(store.search(make.collection, points.vectors[3], 1)[0].payload["text"]) == 20_000


def test_a_point_whose_payload_alone_is_too_large_is_refused_by_id(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(3)
    payloads = [*points.payloads[:2], {"text": "x" * (9 << 20)}]

    with pytest.raises(StoreError, match=points.ids[2]):
        store.upsert(make.collection, replace(points, payloads=payloads))

    store.upsert(make.collection, replace(points, payloads=[*points.payloads[:2], {"text": "x" * (7 << 20)}]))
    assert store.count(make.collection) == 3


def test_a_payload_that_is_not_json_is_refused_by_id(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(1)

    with pytest.raises(StoreError, match=points.ids[0]):
        store.upsert(make.collection, replace(points, payloads=[{"when": object()}]))


def test_an_empty_upsert_is_nothing(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)

    store.upsert(make.collection, make.points(0))

    assert store.count(make.collection) == 0


def test_ids_vectors_and_payloads_must_be_as_many(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)
    points = make.points(2)

    with pytest.raises(StoreError, match="same number"):
        store.upsert(make.collection, Points(points.ids, points.vectors, points.payloads[:1]))


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_limit_out_of_bounds_is_refused(store: VectorStore, make: Any, limit: int) -> None:
    store.create_collection(make.collection)

    with pytest.raises(StoreError, match="limit"):
        store.search(make.collection, make.vectors(1)[0], limit)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "x" * 300, "a\0b"])
def test_a_name_that_cannot_be_a_folder_is_refused(store: VectorStore, make: Any, name: str) -> None:
    with pytest.raises(StoreError, match="name"):
        store.create_collection(replace(make.collection, name=name))


def test_an_unknown_metric_is_refused_and_leaves_nothing(store: VectorStore, make: Any) -> None:
    with pytest.raises(StoreError, match="manhattan"):
        store.create_collection(replace(make.collection, metric="manhattan"))

    assert not store.has_collection(make.collection.name)


def test_collections_do_not_see_each_other(store: VectorStore, make: Any) -> None:
    second = make.second
    store.create_collection(make.collection)
    store.create_collection(second)

    store.upsert(make.collection, make.points(4))
    store.upsert(second, make.points(2))
    store.drop_collection(make.collection)

    assert store.count(second) == 2


def test_a_write_whose_time_is_up_is_not_written(store: VectorStore, make: Any) -> None:
    store.create_collection(make.collection)

    with pytest.raises(StoreUnavailable):
        store.upsert(make.collection, make.points(3), time.monotonic() - 0.001)
    store.upsert(make.collection, make.points(2), time.monotonic() + 60.0)

    assert store.count(make.collection) == 2


def test_an_owner_nobody_knows_has_ended(store: VectorStore) -> None:
    assert store.has_ended("host|1|0.0|gone")
