"""Token states to one vector per sequence, on packed states."""

from collections.abc import Callable

import torch

from embedctl.engine.errors import UnsupportedModel


class PackedStates:
    """The token states that pooling sees.

    hidden: (num_tokens, hidden_size) float32; cu_seqlens: (num_sequences + 1,) int64. num_skipped:
    (num_sequences,) int64, leading tokens of each sequence that are left out; at least the last token stays.
    """

    def __init__(
        self, hidden: torch.Tensor, cu_seqlens: torch.Tensor, num_skipped: torch.Tensor | None
    ) -> None:
        self.hidden = hidden
        self.ends = cu_seqlens[1:]
        self.starts = cu_seqlens[:-1]
        self.seqlens = self.ends - self.starts
        self.num_skipped = None if num_skipped is None else torch.minimum(num_skipped, self.seqlens - 1)

    @property
    def firsts(self) -> torch.Tensor:
        """(num_sequences,) where the pooled tokens of each sequence begin."""
        return self.starts if self.num_skipped is None else self.starts + self.num_skipped

    @property
    def counts(self) -> torch.Tensor:
        """(num_sequences, 1) float32, pooled tokens of each sequence."""
        return (self.ends - self.firsts).unsqueeze(1).float()

    def positions(self) -> torch.Tensor:
        """(num_tokens, 1) float32, from 1 in each sequence."""
        everywhere = torch.arange(1, len(self.hidden) + 1, device=self.hidden.device)
        return (everywhere - self.starts.repeat_interleave(self.seqlens)).unsqueeze(1).float()

    def reduce(self, states: torch.Tensor, reduction: str) -> torch.Tensor:
        """Sum or maximum of (num_tokens, n) over the pooled tokens of each sequence."""
        neutral = 0.0 if reduction == "sum" else float("-inf")
        if self.num_skipped is not None:
            skipped = self.positions() <= self.num_skipped.repeat_interleave(self.seqlens).unsqueeze(1)
            states = states.masked_fill(skipped, neutral)
        return torch.segment_reduce(states, reduction, lengths=self.seqlens, axis=0)


def _cls(states: PackedStates) -> torch.Tensor:
    return states.hidden[states.firsts]


def _lasttoken(states: PackedStates) -> torch.Tensor:
    return states.hidden[states.ends - 1]


def _max(states: PackedStates) -> torch.Tensor:
    return states.reduce(states.hidden, "max")


def _mean(states: PackedStates) -> torch.Tensor:
    return states.reduce(states.hidden, "sum") / states.counts


def _mean_sqrt_len_tokens(states: PackedStates) -> torch.Tensor:
    return states.reduce(states.hidden, "sum") / states.counts.sqrt()


def _weightedmean(states: PackedStates) -> torch.Tensor:
    weights = states.positions()
    return states.reduce(states.hidden * weights, "sum") / states.reduce(weights, "sum")


POOLINGS: dict[str, Callable[[PackedStates], torch.Tensor]] = {
    "cls": _cls,
    "lasttoken": _lasttoken,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len_tokens,
    "weightedmean": _weightedmean,
}


def check_poolings(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in POOLINGS:
            raise UnsupportedModel(f"Pooling {name!r} is not one of {', '.join(POOLINGS)}.")


def pool(states: PackedStates, names: tuple[str, ...]) -> torch.Tensor:
    """(num_sequences, hidden_size * len(names)) float32, in the order of the names."""
    return torch.cat([POOLINGS[name](states) for name in names], dim=1)
