"""One batch from claim to commit: load what exists, embed the rest, upsert, complete."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from embedctl.engine.base import EmbeddingEngine
from embedctl.engine.errors import EngineDied, EngineError, InvalidVector
from embedctl.pipeline.cache import VectorCache
from embedctl.pipeline.errors import CollectionMissing, EmbedctlError, ForeignCollection, StoreError
from embedctl.pipeline.ledger.batches import BatchResult, ClaimedBatch, DeadChunk, LeaseLost
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.payload import QueuedChunk, decode_chunks
from embedctl.pipeline.points import point_id, point_payload
from embedctl.pipeline.sharing import SharedVectors
from embedctl.pipeline.stores.base import Collection, Points, VectorStore

logger = logging.getLogger(__name__)

T = TypeVar("T")
Vector = npt.NDArray[np.float32]

#: A batch that could not be worked on for a passing reason waits this long before it may be claimed again.
RETRY_WAIT_S = 2.0
#: How often a wait for another thread looks whether it should go on.
POLL_S = 0.2


class Interrupted(Exception):
    """Somebody asked this process to stop; the batch goes back."""


@dataclass(frozen=True)
class Worker:
    """What a worker needs for the batches of one run; shared by its threads.

    engine: called when a vector must be computed for the first time. should_stop: asked between steps.
    """

    ledger: Ledger
    run: Run
    collection: Collection
    store: VectorStore
    cache: VectorCache
    shared: SharedVectors
    engine: Callable[[], EmbeddingEngine]
    should_stop: Callable[[], bool]
    lease_s: float
    request_timeout_s: float


@dataclass
class Work:
    """A claimed batch on its way: its chunks, the vectors known so far by input hash, and what has died."""

    claim: ClaimedBatch
    chunks: list[QueuedChunk]
    vectors: dict[str, Vector] = field(default_factory=dict)
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)
    num_embedded: int = 0
    num_tokens: int = 0
    is_upserting: bool = False
    beaten_at: float = field(default_factory=time.monotonic)
    #: Steps of the engine when the lease was extended last.
    num_steps: int = 0

    def missing(self) -> dict[str, QueuedChunk]:
        """Inputs without a vector: hash -> one chunk that has it."""
        return {
            chunk.input_hash: chunk
            for chunk in self.chunks
            if chunk.input_hash not in self.vectors and chunk.input_hash not in self.reasons
        }


def embed_batch(worker: Worker, claim: ClaimedBatch) -> Exception | None:
    """Claimed -> load -> embed -> upsert -> complete.

    A batch that cannot be worked on for a passing reason goes back to the queue, consuming nothing; the
    reason is returned. Errors that end the run (engine dead, disk full, foreign collection) are raised after
    the batch went back.
    """
    work = Work(claim, decode_chunks(claim.payload))
    try:
        load_vectors(worker, work)
        embed_missing(worker, work)
        dead = upsert_points(worker, work)
        complete(worker, work, dead)
    except LeaseLost:
        logger.info("Batch %d was taken over by another attempt", claim.id, extra={"action": "lease_lost"})
    except Interrupted:
        _give_back(worker, work, wait_s=0.0)
    except (EmbedctlError, EngineError) as exc:
        _give_back(worker, work, wait_s=RETRY_WAIT_S if exc.retryable else 0.0)
        if not exc.retryable:
            raise
        logger.warning("Batch %d waits: %s", claim.id, exc, extra={"action": "batch_released"})
        return exc
    return None


def load_vectors(worker: Worker, work: Work) -> None:
    """Take vectors that exist already: of the document's older points, of this process, of the cache."""
    edited = {chunk.document.doc_id for chunk in work.chunks if chunk.document.generation > 1}
    for doc_id in sorted(edited):
        hashes = [chunk.input_hash for chunk in work.chunks if chunk.document.doc_id == doc_id]
        work.vectors.update(worker.store.find_vectors(worker.collection, worker.run.source, doc_id, hashes))
    work.vectors.update(worker.shared.get(work.missing()))
    work.vectors.update(worker.cache.get(list(work.missing())))
    _drop_invalid(work, worker.collection.dim)


def embed_missing(worker: Worker, work: Work) -> None:
    """Compute the rest, each input once, whatever other thread of this process needs it too."""
    if not work.missing():
        return
    # loaded out here: a model that cannot be loaded is no fault of the chunks
    engine = worker.engine()
    work.num_steps = engine.counters.num_steps
    while missing := work.missing():
        mine, theirs = worker.shared.claim(missing)
        computed: dict[str, Vector] = {}
        try:
            if mine:
                _compute(worker, work, engine, [missing[key] for key in mine], computed)
                worker.cache.put(computed)
        finally:
            worker.shared.finish(mine, computed)
        work.vectors.update(computed)
        for key, computation in theirs.items():
            vector = _wait(worker, work, engine, computation).get(key)
            if vector is not None:
                work.vectors[key] = vector


def upsert_points(worker: Worker, work: Work) -> list[DeadChunk]:
    """Write the points that are still wanted, acknowledged. Returns the chunks that died, here or in the
    engine."""
    current, deadline = _still_wanted(worker, work, work.chunks)
    chunks = [chunk for chunk in work.chunks if _key(chunk) in current]
    dead = [
        _dead(chunk, *work.reasons[chunk.input_hash]) for chunk in chunks if chunk.input_hash in work.reasons
    ]
    alive = [chunk for chunk in chunks if chunk.input_hash in work.vectors]
    work.is_upserting = True
    if alive:
        _upsert(worker, work, alive, dead, deadline)
    return dead


def complete(worker: Worker, work: Work, dead: Sequence[DeadChunk]) -> None:
    """Commit the batch and its documents' counters behind the fence of its attempt."""
    counts = Counter(_key(chunk) for chunk in work.chunks)
    num_alive = len(work.chunks) - len(dead)
    result = BatchResult(
        chunks=counts,
        dead=dead,
        num_embedded=work.num_embedded,
        num_reused=max(0, num_alive - work.num_embedded),
        num_tokens=work.num_tokens,
    )
    worker.ledger.batches.complete(work.claim, worker.run, result)
    logger.debug(
        "Embedded batch %d: %d chunks",
        work.claim.id,
        len(work.chunks),
        extra={"action": "batch_embedded", "num_chunks": len(work.chunks)},
    )


def _compute(
    worker: Worker,
    work: Work,
    engine: EmbeddingEngine,
    chunks: Sequence[QueuedChunk],
    computed: dict[str, Vector],
) -> None:
    """Embed; a deterministic error is bisected down to the chunks that cause it."""
    try:
        vectors = _run_engine(worker, work, engine, chunks)
    except (EmbedctlError, Interrupted, EngineDied):
        raise  # the ledger's, when the lease was to be extended: no fault of the chunks
    except Exception as exc:
        if isinstance(exc, EngineError) and exc.retryable:
            raise
        for part in _suspects(exc, chunks):
            if len(part) == 1 and (len(chunks) == 1 or _names(exc, chunks, part[0])):
                work.reasons[part[0].input_hash] = ("embed", _one_line(exc))
            elif part:
                _compute(worker, work, engine, part, computed)
        return
    computed.update(zip((chunk.input_hash for chunk in chunks), vectors, strict=True))
    work.num_embedded += len(chunks)
    work.num_tokens += sum(chunk.num_tokens for chunk in chunks)


def _run_engine(worker: Worker, work: Work, engine: EmbeddingEngine, chunks: Sequence[QueuedChunk]) -> Vector:
    future = engine.submit(
        [chunk.token_ids for chunk in chunks],
        num_prompt_tokens=[chunk.num_prompt_tokens for chunk in chunks],
    )
    try:
        vectors = _wait(worker, work, engine, future)
    finally:
        future.cancel()  # when nobody waits any more, what is not computed yet need not be
    norms = np.linalg.norm(vectors, axis=1)
    invalid = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(invalid):
        raise InvalidVector(indices=tuple(invalid.tolist()))
    return vectors


def _suspects(exc: Exception, chunks: Sequence[QueuedChunk]) -> list[Sequence[QueuedChunk]]:
    """The parts to go on with: what the error names one by one, and the rest; else two halves."""
    named = set(getattr(exc, "indices", ()))
    if named and len(named) < len(chunks):
        singles = [[chunks[i]] for i in sorted(named)]
        return [*singles, [chunk for i, chunk in enumerate(chunks) if i not in named]]
    middle = max(1, len(chunks) // 2)
    return [chunks[:middle], chunks[middle:]] if len(chunks) > 1 else [chunks]


def _names(exc: Exception, chunks: Sequence[QueuedChunk], chunk: QueuedChunk) -> bool:
    return any(chunks[i] is chunk for i in getattr(exc, "indices", ()))


def _still_wanted(
    worker: Worker, work: Work, chunks: Sequence[QueuedChunk]
) -> tuple[set[tuple[str, int]], float]:
    """The documents and generations that are still to be written, and until when they may be.

    The time is taken before the look: a process that is paused after it and goes on much later, when what it
    had begun was swept, must not write any more. It raises LeaseLost when the lease is over.
    """
    deadline = time.monotonic() + worker.request_timeout_s
    keys = {_key(chunk) for chunk in chunks}
    return worker.ledger.batches.current(work.claim, worker.run, keys), deadline


def _upsert(
    worker: Worker, work: Work, chunks: Sequence[QueuedChunk], dead: list[DeadChunk], deadline: float
) -> None:
    points = Points(
        ids=[
            point_id(
                worker.collection.index,
                worker.run.source,
                chunk.document.doc_id,
                chunk.document.generation,
                chunk.ordinal,
            )
            for chunk in chunks
        ],
        vectors=np.stack([work.vectors[chunk.input_hash] for chunk in chunks]),
        payloads=[point_payload(worker.collection, worker.run.source, chunk) for chunk in chunks],
    )
    try:
        worker.store.upsert(worker.collection, points, deadline)
    except StoreError as exc:
        if exc.retryable or isinstance(exc, ForeignCollection | CollectionMissing):
            raise
        if len(chunks) == 1:
            dead.append(_dead(chunks[0], "store", _one_line(exc)))
            return
        middle = len(chunks) // 2
        for half in (chunks[:middle], chunks[middle:]):
            # each request ends within its timeout after the lease, as it begins within the lease
            _, deadline = _still_wanted(worker, work, half)
            _upsert(worker, work, half, dead, deadline)


def _give_back(worker: Worker, work: Work, wait_s: float) -> None:
    """Release the batch; once the upsert has begun, its points may still be on their way."""
    doc_ids = [chunk.document.doc_id for chunk in work.chunks] if work.is_upserting else []
    try:
        ends_at = worker.ledger.now() + worker.request_timeout_s if doc_ids else 0.0
        worker.ledger.batches.release(work.claim, worker.run, wait_s, doc_ids, ends_at)
    except EmbedctlError as exc:  # the lease then runs out by itself
        logger.warning("Batch %d could not be given back: %s", work.claim.id, exc)


def _wait(worker: Worker, work: Work, engine: EmbeddingEngine, future: Future[T]) -> T:
    """The engine's answer, or another thread's."""
    while not wait([future], POLL_S).done:
        if worker.should_stop():
            raise Interrupted
        _beat(worker, work, engine)
    return future.result()


def _beat(worker: Worker, work: Work, engine: EmbeddingEngine) -> None:
    """Keep the lease, now and then, when the engine got on: with whose batch does not matter, it has one
    queue."""
    num_steps = engine.counters.num_steps
    if num_steps != work.num_steps and time.monotonic() - work.beaten_at > worker.lease_s / 4:
        worker.ledger.batches.extend(work.claim, worker.lease_s)
        work.beaten_at, work.num_steps = time.monotonic(), num_steps


def _drop_invalid(work: Work, dim: int) -> None:
    """A stored or cached vector that is not what it should be is computed again."""
    for key, vector in list(work.vectors.items()):
        if vector.shape != (dim,) or not np.isfinite(vector).all() or not vector.any():
            del work.vectors[key]


def _key(chunk: QueuedChunk) -> tuple[str, int]:
    return chunk.document.doc_id, chunk.document.generation


def _dead(chunk: QueuedChunk, stage: str, reason: str) -> DeadChunk:
    return DeadChunk(chunk.document.doc_id, chunk.document.generation, chunk.ordinal, stage, reason)


def _one_line(exc: BaseException) -> str:
    text = " ".join(str(exc).split()) or type(exc).__name__
    return text if isinstance(exc, EngineError | EmbedctlError) else f"{type(exc).__name__}: {text}"
