"""The interface of an engine: token ids in, vectors out."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal, Protocol

from embedctl.engine.counters import EngineCounters
from embedctl.engine.lanes import Lane
from embedctl.engine.lazy import LazyTensor, Vectors
from embedctl.engine.packing import PackedBatch, TokenIds
from embedctl.engine.spec import ModelSpec

Kind = Literal["query", "document"]


class EmbeddingEngine(Protocol):
    """Computes the vectors of one embedding space. Safe to use from several threads.

    Errors: InputTooLong and InvalidInput at once for what the model cannot read; InvalidVector, with the
    positions of the inputs that have no vector; OutOfMemory (retryable) when one sequence alone does not fit;
    EngineDied when the engine thread has ended.
    """

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def embedding_dim(self) -> int:
        """Length of the vectors, after truncation."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens of one input, specials and prompt included."""
        ...

    @property
    def precision(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def is_alive(self) -> bool:
        """False when nothing can be computed any more: closed, or the engine thread has ended."""
        ...

    @property
    def counters(self) -> EngineCounters: ...

    def step(self, packed: PackedBatch) -> LazyTensor:
        """Compute one batch, past the lanes, checks and counters of `submit`."""
        ...

    def submit(
        self,
        token_ids: Sequence[TokenIds],
        lane: Lane = Lane.BULK,
        *,
        num_prompt_tokens: Sequence[int] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> "Future[Vectors]":
        """Queue sequences of token ids; the future gives (n, dim) float32 in their order.

        num_prompt_tokens: leading tokens of each that pooling leaves out, for models that leave prompts out.
        on_step: called in the engine thread after each device step with the number of sequences of this
        request that are done; what it raises fails this request. Cancelling the future drops what is not
        computed yet.
        """
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """Tokenize with this kind's prompt, embed in the query or bulk lane, wait. (n, dim) float32."""
        ...

    def close(self) -> None:
        """Fail what is still queued with EngineDied and end the engine thread. May be called twice."""
        ...
