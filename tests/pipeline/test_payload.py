"""Chunks on their way through the queue come out as they went in, packed within their budget."""

from dataclasses import replace

import numpy as np
import pytest

from embedctl.pipeline.payload import (
    QueuedChunk,
    QueuedDocument,
    decode_chunks,
    encode_chunks,
    halve,
    pack_chunks,
)
from embedctl.pipeline.points import point_id, point_payload
from embedctl.pipeline.stores.base import Collection

DOCUMENT = QueuedDocument("a/ü 會.txt", 3, {"tag": ["x", None, 1.5], "deep": {"é": True}})
COLLECTION = Collection("docs__v1", "docs", "v1", "ab" * 8, "ledger", 4)


def chunk(ordinal, num_tokens=5, document=DOCUMENT, page=None):
    ids = np.arange(num_tokens, dtype=np.int32) + ordinal
    return QueuedChunk(
        document, ordinal, ordinal * 9, ordinal * 9 + 8, f"tëxt {ordinal} 👩‍👩‍👧", ids, 1, "ab" * 16, page
    )


def fields(chunks):
    return [
        (
            c.document,
            c.ordinal,
            c.start,
            c.end,
            c.text,
            c.token_ids.tolist(),
            c.num_prompt_tokens,
            c.input_hash,
            c.page,
        )
        for c in chunks
    ]


def test_what_is_encoded_is_decoded_the_same():
    other = QueuedDocument("b", 1, {})
    chunks = [chunk(0, 3), chunk(1, 500, page=7), chunk(0, 1, other)]

    decoded = decode_chunks(encode_chunks(chunks))

    assert fields(decoded) == fields(chunks)
    assert decoded[0].token_ids.dtype == np.int32


@pytest.mark.parametrize(
    ("sizes", "batch_tokens", "batch_chunks", "packed"),
    [
        ([], 10, 10, []),
        ([4, 4, 4], 8, 10, [[4, 4], [4]]),
        ([4, 4, 4], 100, 2, [[4, 4], [4]]),
        ([9, 1, 1], 8, 10, [[9], [1, 1]]),
        ([1, 9, 1], 8, 10, [[1], [9], [1]]),
        ([8, 8], 8, 10, [[8], [8]]),
    ],
)
def test_chunks_are_packed_in_order_within_tokens_and_number(sizes, batch_tokens, batch_chunks, packed):
    chunks = [chunk(number, size) for number, size in enumerate(sizes)]

    batches = pack_chunks(chunks, batch_tokens, batch_chunks)

    assert [[c.num_tokens for c in batch] for batch in batches] == packed
    assert [c.ordinal for batch in batches for c in batch] == list(range(len(sizes)))


@pytest.mark.parametrize(("number", "sizes"), [(1, [1]), (2, [1, 1]), (5, [3, 2])])
def test_a_lost_batch_is_halved_down_to_single_chunks(number, sizes):
    assert [len(piece) for piece in halve([chunk(i) for i in range(number)])] == sizes


def test_point_ids_follow_from_the_five_and_never_change():
    known = point_id("docs", "notes", "a.txt", 1, 0)

    assert known == "1e3afe69-5e1a-5349-ba5a-ac84f5e185cf"
    others = {
        point_id("docs2", "notes", "a.txt", 1, 0),
        point_id("docs", "note", "sa.txt", 1, 0),
        point_id("docs", "notes", "a.txt", 2, 0),
        point_id("docs", "notes", "a.txt", 1, 1),
        point_id("docs", "notes", "a.txt1", 1, 0),
    }
    assert len(others | {known}) == 6


def test_a_documents_own_metadata_cannot_hide_what_the_point_says_of_itself():
    bold = replace(DOCUMENT, metadata={"source": "mine", "generation": 99})

    payload = point_payload(COLLECTION, "notes", chunk(2, document=bold))

    assert (payload["source"], payload["generation"], payload["ordinal"]) == ("notes", 3, 2)
    assert payload["metadata"] == {"source": "mine", "generation": 99}
    assert (payload["version"], payload["space"]) == ("v1", "ab" * 8)
