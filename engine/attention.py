"""Attention over packed sequences, registered with transformers' attention interface.

transformers builds no mask for an implementation that has no mask function of the same name: right for packed
sequences, which this function keeps apart itself, and silently wrong for anything else. So it refuses to run
without the packed runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from embedctl.engine.errors import UnsupportedModel

PACKED_ATTENTION = "embedctl_packed"

#: Queries of one block of windowed attention: its mask and scores stay small however long the sequence is.
_WINDOW_BLOCK = 512

#: Arguments that change the scores in ways that this function does not know.
_REFUSED = ("softcap", "s_aux", "position_bias", "head_mask", "cache", "past_key_values")


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring sequences of equal length: one attention call without padding."""

    start: int
    num_sequences: int
    seqlen: int

    @property
    def end(self) -> int:
        return self.start + self.num_sequences * self.seqlen


def equal_runs(cu_seqlens: npt.NDArray[np.int32]) -> tuple[Run, ...]:
    """The packed sequences as runs of equal length; sequences sorted by length give the fewest."""
    seqlens = np.diff(cu_seqlens)
    firsts = np.flatnonzero(np.diff(seqlens, prepend=-1))
    counts = np.diff(np.append(firsts, len(seqlens)))
    return tuple(
        Run(int(cu_seqlens[first]), int(count), int(seqlens[first]))
        for first, count in zip(firsts, counts, strict=True)
    )


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    packed_runs: Sequence[Run] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each sequence of the packed runs. Returns (1, num_tokens, heads, head_dim).

    query: (1, heads, num_tokens, head_dim); key, value may have fewer heads.

    sliding_window is counted as transformers does, both ends included: a token sees sliding_window - 1 tokens
    to each side. Raises UnsupportedModel when the model wants what packed attention does not do.
    """
    _refuse_unknown(module, query, attention_mask, packed_runs, kwargs)
    causal = bool(getattr(module, "is_causal", False)) if is_causal is None else is_causal
    window = None if sliding_window is None else sliding_window - 1
    outputs = []
    for run in packed_runs or ():
        q, k, v = (_sequences_of(run, states) for states in (query, key, value))
        attended = _attend(q, k, v, scaling, causal, window)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
    packed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return packed.unsqueeze(0), None


def _refuse_unknown(
    module: torch.nn.Module,
    query: torch.Tensor,
    attention_mask: torch.Tensor | None,
    packed_runs: Sequence[Run] | None,
    kwargs: dict[str, Any],
) -> None:
    name = type(module).__name__
    if packed_runs is None or attention_mask is not None or query.shape[0] != 1:
        raise UnsupportedModel(f"{name} does not pass the packed sequences on to its attention.")
    for argument in _REFUSED:
        if kwargs.get(argument) is not None:
            raise UnsupportedModel(f"{name} uses {argument}, which packed attention does not know.")


def _sequences_of(run: Run, states: torch.Tensor) -> torch.Tensor:
    """(1, heads, num_tokens, head_dim) -> (num_sequences, heads, seqlen, head_dim), a view."""
    heads, _, head_dim = states.shape[1:]
    of_run = states[0, :, run.start : run.end]
    return of_run.view(heads, run.num_sequences, run.seqlen, head_dim).transpose(0, 1)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    causal: bool,
    window: int | None,
) -> torch.Tensor:
    """(num_sequences, heads, seqlen, head_dim); window: tokens seen to each side, None for all."""
    gqa = query.shape[1] != key.shape[1]
    seqlen = query.shape[2]
    if window is None or window >= seqlen - 1:
        return scaled_dot_product_attention(
            query, key, value, is_causal=causal, scale=scaling, enable_gqa=gqa
        )
    blocks = []
    for start in range(0, seqlen, _WINDOW_BLOCK):
        end = min(start + _WINDOW_BLOCK, seqlen)
        first, last = max(0, start - window), end if causal else min(seqlen, end + window)
        mask = _window_mask(start - first, end - start, last - first, window, causal, query.device)
        q, k, v = query[:, :, start:end], key[:, :, first:last], value[:, :, first:last]
        blocks.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, enable_gqa=gqa))
    return torch.cat(blocks, dim=2)


@lru_cache(maxsize=64)
def _window_mask(
    offset: int, num_queries: int, num_keys: int, window: int, causal: bool, device: torch.device
) -> torch.Tensor:
    """(num_queries, num_keys) bool: which keys a query sees; query 0 stands at key `offset`."""
    distance = (
        torch.arange(num_keys, device=device) - (torch.arange(num_queries, device=device) + offset)[:, None]
    )
    seen = distance.abs() <= window
    return seen & (distance <= 0) if causal else seen


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
