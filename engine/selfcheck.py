"""Does the fast path compute what the model means? Asked once, before anything is embedded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from embedctl.engine.errors import SelfCheckFailed
from embedctl.engine.head import Head, vectors_of
from embedctl.engine.packing import TokenIds, pack
from embedctl.engine.pooling import PackedStates
from embedctl.engine.spec import ModelSpec
from embedctl.engine.transformer import Transformer, states_alone, vocab_size_of

#: Least cosine between a vector of the fast path and the same input alone.
_THRESHOLDS = {"fp32": 0.9999, "bf16": 0.999, "fp16": 0.999}
#: Equal neighbours, short ones and a long one in between: leaking attention, wrong positions and wrong order
#: all show.
_SEQLENS = (5, 33, 33, 2, 160, 12)
#: Sliding windows up to here get an input that is longer than the window.
_LARGEST_WINDOW = 1024


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """Random inputs and their vectors, each computed alone by transformers' own eager code.

    reference: (num_sequences, dim) float32. threshold: least cosine.
    """

    spec: ModelSpec
    head: Head
    sequences: Sequence[TokenIds]
    reference: torch.Tensor
    threshold: float

    @classmethod
    def record(cls, spec: ModelSpec, model: PreTrainedModel, head: Head, precision: str) -> "SelfCheck":
        sequences = _random_sequences(spec, model)
        reference = torch.cat([head(_pooled_alone(model, ids)) for ids in sequences])
        return cls(spec, head, sequences, reference, _THRESHOLDS[precision])

    def run(self, transformer: Transformer) -> None:
        """Raises SelfCheckFailed, with the model's type, when a vector differs or nothing runs."""
        packed = pack(self.sequences)
        try:
            vectors = vectors_of(self.spec, transformer, self.head, packed)
            worst = torch.cosine_similarity(vectors, self.reference).min().item()
        except Exception as error:
            raise SelfCheckFailed(f"{self._path(transformer)} does not run: {error}") from error
        if not worst >= self.threshold:
            raise SelfCheckFailed(
                f"{self._path(transformer)} differs from the same inputs one by one: "
                f"cosine {worst:.6f}, at least {self.threshold} is needed."
            )

    def _path(self, transformer: Transformer) -> str:
        way = "padded" if transformer.is_padded else "packed"
        return f"The {way} computation of {self.spec.model_type} models ({self.spec.folder})"


def _pooled_alone(model: PreTrainedModel, ids: TokenIds) -> PackedStates:
    hidden = states_alone(model, ids).float()
    return PackedStates(hidden, torch.tensor([0, len(ids)], device=hidden.device), None)


def _random_sequences(spec: ModelSpec, model: PreTrainedModel) -> list[TokenIds]:
    """Token ids without the pad id, from which some families count positions."""
    vocab_size = vocab_size_of(model)
    known = np.setdiff1d(np.arange(vocab_size, dtype=np.int32), [model.config.pad_token_id or 0])
    random = np.random.default_rng(0)
    window = max((value for value in _windows(model) if value <= _LARGEST_WINDOW), default=0)
    seqlens = (*_SEQLENS, window + 64) if window else _SEQLENS
    return [random.choice(known, min(seqlen, spec.max_tokens)) for seqlen in seqlens]


def _windows(model: PreTrainedModel) -> list[int]:
    names = ("sliding_window", "local_attention")
    return [value for name in names if isinstance(value := getattr(model.config, name, None), int)]
