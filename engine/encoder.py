"""One step: packed token ids through the transformer and its head."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from transformers import PreTrainedModel

from embedctl.engine.config import EngineConfig
from embedctl.engine.errors import InvalidEngineConfig, OutOfMemory, SelfCheckFailed, UnsupportedModel
from embedctl.engine.head import Head, vectors_of
from embedctl.engine.lazy import LazyTensor, ReadyTensor
from embedctl.engine.linear import block_linears, is_blocked_available
from embedctl.engine.packing import PackedBatch
from embedctl.engine.selfcheck import SelfCheck
from embedctl.engine.spec import ModelSpec
from embedctl.engine.threads import num_usable_cores
from embedctl.engine.transformer import (
    PackedTransformer,
    PaddedTransformer,
    Transformer,
    load_transformer,
    vocab_size_of,
)

logger = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class TransformerEncoder:
    """A model at one precision on one device. One thread at a time computes."""

    def __init__(
        self,
        spec: ModelSpec,
        transformer: Transformer,
        head: Head,
        precision: str,
        device: torch.device,
        vocab_size: int,
    ) -> None:
        self._spec = spec
        self._transformer = transformer
        self._head = head
        self._device = device
        self._exact: Transformer | None = None
        self._lock = Lock()
        self.precision = precision
        self.vocab_size = vocab_size

    @property
    def embedding_dim(self) -> int:
        return self._head.embedding_dim

    @property
    def device(self) -> str:
        return str(self._device)

    @property
    def is_padded(self) -> bool:
        return self._transformer.is_padded

    def encode(self, packed: PackedBatch) -> LazyTensor:
        return self._run(self._transformer, packed)

    def encode_exactly(self, packed: PackedBatch) -> LazyTensor:
        """In fp32; the first call of a half-precision encoder loads the weights once more and keeps them."""
        if self._exact is None:
            self._exact = self._transformer if self.precision == "fp32" else self._load_exact()
        return self._run(self._exact, packed)

    def _load_exact(self) -> Transformer:
        model = load_transformer(self._spec, torch.float32, self._device)
        return PaddedTransformer(model) if self.is_padded else PackedTransformer(model)

    def _run(self, transformer: Transformer, packed: PackedBatch) -> LazyTensor:
        with self._lock, torch.inference_mode(), _out_of_memory_translated():
            vectors = vectors_of(self._spec, transformer, self._head, packed)
            return ReadyTensor(vectors.numpy(force=True))


def load_encoder(
    spec: ModelSpec, precision: str, dimensions: int | None, config: EngineConfig
) -> TransformerEncoder:
    """Load, optimise and check. Raises ModelFilesError, UnsupportedModel or SelfCheckFailed."""
    dtype = _dtype(precision)
    device = _device(config.device)
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads or _default_threads())
    head = Head(spec, dimensions, device)
    with torch.inference_mode():
        transformer, vocab_size = _load_checked(spec, head, precision, dtype, device)
    return TransformerEncoder(spec, transformer, head, precision, device, vocab_size)


def _load_checked(
    spec: ModelSpec, head: Head, precision: str, dtype: torch.dtype, device: torch.device
) -> tuple[Transformer, int]:
    """The fastest way of running the model that agrees with transformers' own; the size of its vocabulary."""
    model = load_transformer(spec, dtype, device)
    check = SelfCheck.record(spec, model, head, precision)
    can_block = precision == "fp32" and device.type == "cpu" and is_blocked_available()
    is_packable: bool = model.is_backend_compatible()  # type: ignore[no-untyped-call]
    failures: list[SelfCheckFailed] = []
    for build, is_blocked in _ways(is_packable=is_packable, can_block=can_block):
        if failures:
            model = load_transformer(spec, dtype, device)
        if is_blocked:
            block_linears(model)
        transformer = build(model)
        try:
            check.run(transformer)
        except SelfCheckFailed as failure:
            logger.warning(
                "%s", failure, extra={"action": "self_check_failed", "model_type": spec.model_type}
            )
            failures.append(failure)
        else:
            return transformer, vocab_size_of(model)
    raise failures[-1]


def _ways(
    *, is_packable: bool, can_block: bool
) -> Iterator[tuple[Callable[[PreTrainedModel], Transformer], bool]]:
    """Ways of running a model, the fastest first: packed or padded, and whether its linears are blocked."""
    if is_packable:
        yield PackedTransformer, can_block
    if can_block:
        yield PaddedTransformer, True
    yield PaddedTransformer, False


@contextmanager
def _out_of_memory_translated() -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory from error
    except RuntimeError as error:
        # the CPU allocator has no class of its own
        if "can't allocate memory" in str(error):
            raise OutOfMemory from error
        raise


def _dtype(precision: str) -> torch.dtype:
    if precision not in DTYPES:
        raise UnsupportedModel(f"Precision {precision!r} is not available; use one of {', '.join(DTYPES)}.")
    return DTYPES[precision]


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidEngineConfig("device='cuda', but torch sees no CUDA device here; use cpu or auto.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _default_threads() -> int:
    """The usable cores, or fewer where the environment says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = num_usable_cores()
    return min(int(limit), cores) if limit.isdigit() and int(limit) > 0 else cores
