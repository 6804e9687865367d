"""Points: their ids, which follow from the document's generation, and their payload."""

import uuid
from typing import Any

from embedctl.pipeline.payload import QueuedChunk
from embedctl.pipeline.stores.base import Collection

#: Namespace of all point ids; fixed for ever.
NAMESPACE = uuid.UUID("6f1f7c52-4c0e-5b8e-9a52-0f6f5a1c9e37")


def point_id(index: str, source: str, doc_id: str, generation: int, ordinal: int) -> str:
    """UUIDv5 over the five; a NUL cannot occur in any of them."""
    name = f"{index}\x00{source}\x00{doc_id}\x00{generation}\x00{ordinal}"
    return str(uuid.uuid5(NAMESPACE, name))


def point_payload(collection: Collection, source: str, chunk: QueuedChunk) -> dict[str, Any]:
    """What is stored beside the vector; the document's own metadata stay apart under `metadata`."""
    return {
        "doc_id": chunk.document.doc_id,
        "source": source,
        "generation": chunk.document.generation,
        "ordinal": chunk.ordinal,
        "start": chunk.start,
        "end": chunk.end,
        "text": chunk.text,
        "input_hash": chunk.input_hash,
        "version": collection.version,
        "space": collection.space,
        "metadata": _metadata(chunk),
    }


def _metadata(chunk: QueuedChunk) -> dict[str, Any]:
    own = {} if chunk.page is None else {"page": chunk.page}
    return {**chunk.document.metadata, **own}
