"""Hits grouped by document, and the part of a chunk that is shown."""

import numpy as np
import pytest

from embedctl.pipeline.search import search, snippet
from embedctl.pipeline.stores.base import Collection, Hit

COLLECTION = Collection("docs__v1", "docs", "v1", "ab" * 8, "ledger", 4)


class Engine:
    """Embeds every query as the same vector, and remembers its kind."""

    def __init__(self):
        self.kinds = []

    def embed(self, texts, kind):
        self.kinds.append(kind)
        return np.ones((len(texts), 4), np.float32)


class Ranked:
    """A store whose nearest points are given."""

    def __init__(self, doc_ids):
        self._doc_ids = doc_ids
        self.limits = []

    def search(self, collection, vector, limit, equals=None):
        self.limits.append(limit)
        return [
            Hit(
                f"{place}",
                1.0 - place / 1e4,
                {"doc_id": doc_id, "source": "s", "start": 0, "end": 1, "text": "t"},
            )
            for place, doc_id in enumerate(self._doc_ids[:limit])
        ]


def test_each_document_is_a_hit_once_by_its_best_chunk():
    engine, store = Engine(), Ranked(["a", "a", "b", "a", "c", "b"])

    result = search(store, COLLECTION, engine, "query", 10)

    assert [(hit.doc_id, round(hit.score, 4)) for hit in result.hits] == [
        ("a", 1.0),
        ("b", 0.9998),
        ("c", 0.9996),
    ]
    assert engine.kinds == ["query"]


def test_a_document_with_many_chunks_does_not_crowd_out_the_others():
    store = Ranked(["long"] * 300 + ["b", "c"])

    result = search(store, COLLECTION, Engine(), "query", 3)

    assert [hit.doc_id for hit in result.hits] == ["long", "b", "c"]


def test_by_chunk_nothing_is_grouped():
    result = search(Ranked(["a", "a", "b"]), COLLECTION, Engine(), "query", 2, by_chunk=True)

    assert [hit.doc_id for hit in result.hits] == ["a", "a"]


def test_the_result_names_version_space_and_collection():
    assert search(Ranked([]), COLLECTION, Engine(), "query", 2).to_json() == {
        "version": "v1",
        "space": "ab" * 8,
        "collection": "docs__v1",
        "hits": [],
    }


LONG = " ".join(f"w{number:03}" for number in range(100))


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("short\n\n text", "query", "short text"),
        (LONG, "nothing of it", "w000 w001 w002 w003 …"),
        (LONG, "w050 w052", "… w050 w051 w052 w053 …"),
        (LONG, "w099", "… w096 w097 w098 w099"),
    ],
)
def test_the_snippet_is_the_part_with_the_querys_words(text, query, shown):
    assert snippet(text, query, 22) == shown


@pytest.mark.parametrize("num_chars", [10, 40, 79])
def test_a_snippet_is_never_longer_than_asked_but_for_its_ellipses(num_chars):
    assert len(snippet(LONG + "x" * 500, "w070", num_chars)) <= num_chars + 4
