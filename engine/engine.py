"""The engine: token ids in, vectors out, for bulk workers and the query service alike."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from embedctl.engine.base import EmbeddingEngine, Kind
from embedctl.engine.config import EngineConfig
from embedctl.engine.counters import EngineCounters
from embedctl.engine.dummy import DummyEngine
from embedctl.engine.errors import EngineDied, InvalidEngineConfig
from embedctl.engine.inputs import check_token_ids
from embedctl.engine.lanes import Lane
from embedctl.engine.lazy import LazyTensor, Vectors
from embedctl.engine.packing import PackedBatch, TokenIds
from embedctl.engine.request import Request
from embedctl.engine.scheduler import Encoder, Scheduler, StepLimit
from embedctl.engine.spec import ModelSpec

if TYPE_CHECKING:
    from embedctl.engine.tokenizer import TextTokenizer

#: Tokens of one CPU step: large enough for full matrix products, small enough that activations stay in the
#: cache and that a query never waits long for the bulk step before it.
CPU_STEP_TOKENS = 2048

_DEFAULTS = EngineConfig()


def load_engine(
    spec: ModelSpec,
    precision: str = "fp32",
    dimensions: int | None = None,
    config: EngineConfig = _DEFAULTS,
) -> EmbeddingEngine:
    """Load the weights, check the fast path, start the engine thread. A dummy's spec gives a DummyEngine.

    dimensions: length to which vectors are cut before they are normalised; None keeps what the model's files
    say. Raises ModelFilesError, UnsupportedModel, SelfCheckFailed or InvalidEngineConfig.
    """
    if spec.is_dummy:
        return DummyEngine(spec, precision, dimensions)
    from embedctl.engine.encoder import load_encoder

    limit = step_limit(config, spec.max_tokens)
    return Engine(spec, load_encoder(spec, precision, dimensions, config), limit, config)


def step_limit(config: EngineConfig, max_tokens: int) -> StepLimit:
    """Raises InvalidEngineConfig when the longest input of the model would not fit into a step."""
    if config.max_step_tokens is None:
        return StepLimit(max(CPU_STEP_TOKENS, max_tokens), max_tokens)
    if config.max_step_tokens < max_tokens:
        raise InvalidEngineConfig(
            f"max_step_tokens={config.max_step_tokens} is less than the longest input of the model; "
            f"use {max_tokens} or more."
        )
    return StepLimit(config.max_step_tokens, max_tokens)


class Engine:
    """One model at one precision on one device. Methods are documented in base.EmbeddingEngine."""

    def __init__(
        self,
        spec: ModelSpec,
        encoder: Encoder,
        limit: StepLimit,
        config: EngineConfig = _DEFAULTS,
    ) -> None:
        self._spec = spec
        self._encoder = encoder
        self._config = config
        self._scheduler = Scheduler(encoder, limit)

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def embedding_dim(self) -> int:
        return self._encoder.embedding_dim

    @property
    def max_tokens(self) -> int:
        return self._spec.max_tokens

    @property
    def precision(self) -> str:
        return self._encoder.precision

    @property
    def device(self) -> str:
        return self._encoder.device

    @property
    def is_padded(self) -> bool:
        """True for models that cannot run packed."""
        return self._encoder.is_padded

    @property
    def is_alive(self) -> bool:
        """False when nothing can be computed any more."""
        return self._scheduler.is_alive

    @property
    def counters(self) -> EngineCounters:
        return self._scheduler.counters

    def step(self, packed: PackedBatch) -> LazyTensor:
        return self._encoder.encode(packed)

    def submit(
        self,
        token_ids: Sequence[TokenIds],
        lane: Lane = Lane.BULK,
        *,
        num_prompt_tokens: Sequence[int] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> "Future[Vectors]":
        check_token_ids(token_ids, self.max_tokens, self._encoder.vocab_size)
        request = Request(token_ids, num_prompt_tokens, self.embedding_dim, on_step)
        if len(token_ids):
            self._scheduler.submit(request, lane)
        else:
            request.deliver([], np.empty((0, self.embedding_dim), dtype=np.float32), [])
        return request.future

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        prompt = self._spec.query_prompt if kind == "query" else self._spec.document_prompt
        inputs = self._tokenizer.encode_inputs(texts, prompt)
        future = self.submit(
            [item.token_ids for item in inputs],
            Lane.QUERY if kind == "query" else Lane.BULK,
            num_prompt_tokens=[item.num_prompt_tokens for item in inputs],
        )
        return self._wait(future)

    def close(self) -> None:
        self._scheduler.close()

    def _wait(self, future: "Future[Vectors]") -> Vectors:
        """The result, as long as the engine finishes steps. Raises EngineDied when it does not any more."""
        while True:
            before = self.counters.num_steps
            try:
                return future.result(timeout=self._config.stall_s)
            except TimeoutError:
                if self.counters.num_steps == before:
                    future.cancel()
                    raise EngineDied(
                        f"The engine finished no step for {self._config.stall_s:.0f} s."
                    ) from None

    @cached_property
    def _tokenizer(self) -> "TextTokenizer":
        from embedctl.engine.tokenizer import load_tokenizer

        return load_tokenizer(self._spec)
