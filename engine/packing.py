"""Sequences laid end to end: what one step computes, without padding between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """The sequences of one step, concatenated.

    input_ids: (num_tokens,) int64. position_ids: (num_tokens,) int64, from 0 in each sequence (the encoder
    adds what its model family counts from). cu_seqlens: (num_sequences + 1,) int32, where each sequence
    begins, then num_tokens. num_prompt_tokens: (num_sequences,) int32, leading tokens of each that pooling
    leaves out when the model says so.
    """

    input_ids: npt.NDArray[np.int64]
    position_ids: npt.NDArray[np.int64]
    cu_seqlens: npt.NDArray[np.int32]
    num_prompt_tokens: npt.NDArray[np.int32]

    @property
    def seqlens(self) -> npt.NDArray[np.int32]:
        return np.diff(self.cu_seqlens)

    @property
    def max_seqlen(self) -> int:
        return int(self.seqlens.max())

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)


def pack(sequences: Sequence[TokenIds], num_prompt_tokens: Sequence[int] | None = None) -> PackedBatch:
    """Concatenate at least one sequence; none of them is empty."""
    seqlens = np.fromiter((len(ids) for ids in sequences), dtype=np.int32, count=len(sequences))
    cu_seqlens = np.zeros(len(sequences) + 1, dtype=np.int32)
    np.cumsum(seqlens, out=cu_seqlens[1:])
    starts = np.repeat(cu_seqlens[:-1], seqlens)
    prompts = np.zeros(len(sequences)) if num_prompt_tokens is None else np.asarray(num_prompt_tokens)
    return PackedBatch(
        input_ids=np.concatenate(sequences).astype(np.int64),
        position_ids=np.arange(len(starts), dtype=np.int64) - starts,
        cu_seqlens=cu_seqlens,
        num_prompt_tokens=prompts.astype(np.int32),
    )


@dataclass(frozen=True, slots=True)
class StepSize:
    """What a step holds while it is being filled."""

    num_sequences: int = 0
    num_tokens: int = 0
    max_seqlen: int = 0

    def plus(self, lengths: npt.NDArray[np.int64]) -> "StepSize":
        """With these further sequences, of which there is at least one."""
        return StepSize(
            self.num_sequences + len(lengths),
            self.num_tokens + int(lengths.sum()),
            max(self.max_seqlen, int(lengths.max())),
        )

    def num_fitting(self, lengths: npt.NDArray[np.int64], max_tokens: int, *, is_padded: bool) -> int:
        """How many of the leading sequences still fit: packed, their sum counts; padded, rows x longest."""
        if is_padded:
            longest = np.maximum(np.maximum.accumulate(lengths), self.max_seqlen)
            cost = longest * (self.num_sequences + np.arange(1, len(lengths) + 1))
        else:
            cost = self.num_tokens + np.cumsum(lengths)
        return int(np.searchsorted(cost, max_tokens, side="right"))
