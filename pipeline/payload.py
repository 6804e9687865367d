"""The payload of a batch: its chunks with their token ids, as compressed Arrow, until the batch is done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

TokenIds = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class QueuedDocument:
    """What the chunks of one document share. metadata: goes into the payload of every point."""

    doc_id: str
    generation: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueuedChunk:
    """One chunk on its way to the engine.

    text: `canonical_text[start:end]`. token_ids: (n,) int32, the whole model input. input_hash: hash of that
    input.
    page: where it begins, from 1, in a document that has pages.
    """

    document: QueuedDocument
    ordinal: int
    start: int
    end: int
    text: str
    token_ids: TokenIds
    num_prompt_tokens: int
    input_hash: str
    page: int | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


_SCHEMA = pa.schema(
    {
        "document": pa.int32(),
        "ordinal": pa.int32(),
        "start": pa.int64(),
        "end": pa.int64(),
        "text": pa.large_string(),
        "token_ids": pa.large_list(pa.int32()),
        "num_prompt_tokens": pa.int32(),
        "input_hash": pa.string(),
        "page": pa.int32(),
    }
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def encode_chunks(chunks: Sequence[QueuedChunk]) -> bytes:
    """Arrow IPC stream, zstd-compressed; documents are written once, in the schema's metadata."""
    documents = list({id(chunk.document): chunk.document for chunk in chunks}.values())
    place = {id(document): number for number, document in enumerate(documents)}
    described = [[document.doc_id, document.generation, document.metadata] for document in documents]
    schema = _SCHEMA.with_metadata({"documents": orjson.dumps(described)})
    columns = [
        pa.array([place[id(chunk.document)] for chunk in chunks], pa.int32()),
        pa.array([chunk.ordinal for chunk in chunks], pa.int32()),
        pa.array([chunk.start for chunk in chunks], pa.int64()),
        pa.array([chunk.end for chunk in chunks], pa.int64()),
        pa.array([chunk.text for chunk in chunks], pa.large_string()),
        _token_lists(chunks),
        pa.array([chunk.num_prompt_tokens for chunk in chunks], pa.int32()),
        pa.array([chunk.input_hash for chunk in chunks], pa.string()),
        pa.array([chunk.page for chunk in chunks], pa.int32()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode_chunks(payload: bytes) -> list[QueuedChunk]:
    """The chunks in the order in which they were encoded."""
    table = pa.ipc.open_stream(payload).read_all().combine_chunks()
    described = orjson.loads(table.schema.metadata[b"documents"])
    documents = [QueuedDocument(doc_id, generation, metadata) for doc_id, generation, metadata in described]
    lists = table.column("token_ids").combine_chunks()
    values, offsets = lists.values.to_numpy(), lists.offsets.to_numpy()
    columns = [table.column(name).to_pylist() for name in ("document", "ordinal", "start", "end", "text")]
    rest = [table.column(name).to_pylist() for name in ("num_prompt_tokens", "input_hash", "page")]
    return [
        QueuedChunk(
            documents[document],
            ordinal,
            start,
            end,
            text,
            values[offsets[i] : offsets[i + 1]],
            prompt,
            key,
            page,
        )
        for i, (document, ordinal, start, end, text, prompt, key, page) in enumerate(
            zip(*columns, *rest, strict=True)
        )
    ]


def pack_chunks(
    chunks: Iterable[QueuedChunk], batch_tokens: int, batch_chunks: int
) -> list[list[QueuedChunk]]:
    """Cut a stream of chunks into batches of at most so many tokens and chunks; a larger chunk is a batch of
    its own."""
    packed: list[list[QueuedChunk]] = []
    num_tokens = 0
    for chunk in chunks:
        is_full = packed and (num_tokens + chunk.num_tokens > batch_tokens or len(packed[-1]) >= batch_chunks)
        if not packed or is_full:
            packed.append([])
            num_tokens = 0
        packed[-1].append(chunk)
        num_tokens += chunk.num_tokens
    return packed


def halve(chunks: Sequence[QueuedChunk]) -> list[Sequence[QueuedChunk]]:
    """Two halves; one piece when there is nothing to split."""
    middle = (len(chunks) + 1) // 2
    return [piece for piece in (chunks[:middle], chunks[middle:]) if piece]


def _token_lists(chunks: Sequence[QueuedChunk]) -> Any:
    lengths = [chunk.num_tokens for chunk in chunks]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    values = np.concatenate([chunk.token_ids for chunk in chunks]) if chunks else np.empty(0, np.int32)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.int32, copy=False)))
