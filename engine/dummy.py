"""An engine without a model, for tests and rehearsals: everything but the mathematics is real."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from embedctl.engine.base import Kind
from embedctl.engine.counters import EngineCounters
from embedctl.engine.errors import EngineDied, UnsupportedModel
from embedctl.engine.inputs import check_token_ids
from embedctl.engine.lanes import Lane
from embedctl.engine.lazy import LazyTensor, ReadyTensor, Vectors
from embedctl.engine.packing import PackedBatch, StepSize, TokenIds, pack
from embedctl.engine.spec import ModelSpec

if TYPE_CHECKING:
    from embedctl.engine.tokenizer import TextTokenizer

#: Decides for one sequence whether computing it raises.
Fault = Callable[[TokenIds], BaseException | None]

_STEP_TOKENS = 2048
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


class DummyEngine:
    """Unit vectors that depend on the token ids only: equal ids equal vectors, others nearly orthogonal.

    A request is computed in the caller's thread, one step at a time over all callers, as one device would.
    delay_s: how long each step pretends to work; None takes the spec's. fault: raises for the sequences that
    it picks. Methods are documented in base.EmbeddingEngine.
    """

    def __init__(
        self,
        spec: ModelSpec,
        precision: str = "fp32",
        dimensions: int | None = None,
        *,
        delay_s: float | None = None,
        fault: Fault | None = None,
    ) -> None:
        if dimensions is not None and not 1 <= dimensions <= spec.embedding_dim:
            raise UnsupportedModel(
                f"The model has {spec.embedding_dim} dimensions; they cannot be cut to {dimensions}."
            )
        self._spec = spec
        self._precision = precision
        self._embedding_dim = dimensions or spec.truncate_dim or spec.embedding_dim
        self._delay_s = spec.delay_ms / 1000 if delay_s is None else delay_s
        self._fault = fault
        self._counters = EngineCounters()
        self._num_requests = 0
        self._device_lock = threading.Lock()
        self._is_closed = False

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def embedding_dim(self) -> int:
        return self._embedding_dim

    @property
    def max_tokens(self) -> int:
        return self._spec.max_tokens

    @property
    def precision(self) -> str:
        return self._precision

    @property
    def device(self) -> str:
        return "dummy"

    @property
    def is_alive(self) -> bool:
        return not self._is_closed

    @property
    def counters(self) -> EngineCounters:
        return self._counters

    @property
    def num_requests(self) -> int:
        """Calls of `submit` that had sequences, `embed` included."""
        return self._num_requests

    def step(self, packed: PackedBatch) -> LazyTensor:
        sequences = np.split(packed.input_ids.astype(np.int32), packed.cu_seqlens[1:-1])
        with self._device_lock:
            started = time.perf_counter()
            self._raise_faults(sequences)
            if self._delay_s:
                time.sleep(self._delay_s)
            vectors = vectors_of(sequences, self._embedding_dim)
            seconds = time.perf_counter() - started
            num_tokens = packed.num_tokens
            self._counters = self._counters.plus_step(len(sequences), num_tokens, num_tokens, seconds)
        return ReadyTensor(vectors)

    def submit(
        self,
        token_ids: Sequence[TokenIds],
        lane: Lane = Lane.BULK,
        *,
        num_prompt_tokens: Sequence[int] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> "Future[Vectors]":
        check_token_ids(token_ids, self.max_tokens)
        if self._is_closed:
            raise EngineDied("The engine was closed.")
        self._num_requests += bool(len(token_ids))
        future: Future[Vectors] = Future()
        try:
            future.set_result(self._compute(token_ids, on_step))
        except Exception as error:
            future.set_exception(error)
        return future

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        prompt = self._spec.query_prompt if kind == "query" else self._spec.document_prompt
        return self.submit([item.token_ids for item in self._tokenizer.encode_inputs(texts, prompt)]).result(
            timeout=0
        )

    def close(self) -> None:
        self._is_closed = True

    def _compute(self, token_ids: Sequence[TokenIds], on_step: Callable[[int], None] | None) -> Vectors:
        vectors = np.empty((len(token_ids), self._embedding_dim), dtype=np.float32)
        lengths = np.fromiter((len(ids) for ids in token_ids), dtype=np.int64, count=len(token_ids))
        done = 0
        while done < len(token_ids):
            ahead = lengths[done : done + _STEP_TOKENS]
            count = max(1, StepSize().num_fitting(ahead, _STEP_TOKENS, is_padded=False))
            vectors[done : done + count] = self.step(pack(token_ids[done : done + count])).result()
            done += count
            if on_step is not None:
                on_step(done)
        return vectors

    def _raise_faults(self, sequences: Sequence[TokenIds]) -> None:
        if self._fault is None:
            return
        for ids in sequences:
            if (error := self._fault(ids)) is not None:
                raise error

    @cached_property
    def _tokenizer(self) -> "TextTokenizer":
        from embedctl.engine.tokenizer import load_tokenizer

        return load_tokenizer(self._spec)


def vectors_of(sequences: Sequence[TokenIds], dim: int) -> Vectors:
    """(len(sequences), dim) float32 of unit length. The same on every machine."""
    seeds = np.fromiter((_seed(ids) for ids in sequences), dtype=np.uint64, count=len(sequences))
    steps = np.arange(1, dim + 1, dtype=np.uint64) * _GOLDEN_RATIO
    bits = _mix(seeds[:, None] + steps[None, :])
    # 24 random bits fill a float32's mantissa: uniform in [-1, 1)
    vectors = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    vectors[~vectors.any(axis=1)] = 1.0
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _seed(ids: TokenIds) -> int:
    data = np.ascontiguousarray(ids, dtype="<i4").tobytes()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function: every input bit changes half of the output bits."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
