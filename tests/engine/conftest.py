"""An engine whose encoder is a fake with misfortunes that tests choose; no torch in it."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from embedctl.engine.config import EngineConfig
from embedctl.engine.dummy import vectors_of
from embedctl.engine.engine import Engine
from embedctl.engine.lazy import LazyTensor, ReadyTensor
from embedctl.engine.packing import PackedBatch
from embedctl.engine.scheduler import StepLimit
from embedctl.engine.spec import dummy_spec

DIM = 8


class FakeEncoder:
    """Computes DummyEngine's vectors.

    before: sees every step and may raise or wait. spoil: a value that fills the vector of these ids.
    exact_value: what fills the vector of an fp32 retry; None leaves it right.
    """

    embedding_dim = DIM
    precision = "fp32"
    device = "cpu"
    vocab_size = 1000

    def __init__(self, *, is_padded: bool = False) -> None:
        self.is_padded = is_padded
        self.steps: list[list[list[int]]] = []
        self.before: Callable[[list[list[int]]], None] = lambda step: None
        self.spoil: Callable[[list[int]], float | None] = lambda ids: None
        self.exact_value: float | None = None

    def encode(self, packed: PackedBatch) -> LazyTensor:
        sequences = np.split(packed.input_ids.astype(np.int32), packed.cu_seqlens[1:-1])
        step = [ids.tolist() for ids in sequences]
        self.steps.append(step)
        self.before(step)
        vectors = vectors_of(sequences, DIM)
        for place, ids in enumerate(step):
            if (value := self.spoil(ids)) is not None:
                vectors[place] = value
        return ReadyTensor(vectors)

    def encode_exactly(self, packed: PackedBatch) -> LazyTensor:
        value = self.exact_value
        vectors = vectors_of([packed.input_ids.astype(np.int32)], DIM)
        return ReadyTensor(vectors if value is None else np.full_like(vectors, value))


class Gate:
    """Holds the first step until it is opened, so that a test can queue requests behind it."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self._is_open = threading.Event()

    def __call__(self, step: list[list[int]]) -> None:
        if not self.is_entered.is_set():
            self.is_entered.set()
            assert self._is_open.wait(timeout=30)

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture
def engine(encoder: FakeEncoder, gate: Gate) -> Iterator[Engine]:
    """Steps of at most 20 tokens; inputs of at most 10."""
    spec = replace(dummy_spec(DIM), max_tokens=10)
    engine = Engine(spec, encoder, StepLimit(max_tokens=20, min_tokens=10), EngineConfig(stall_s=30))
    yield engine
    gate.open()
    engine.close()
