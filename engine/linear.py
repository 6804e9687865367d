"""Matrix products of the CPU path: weights packed once into the blocks that the kernel reads."""

import torch
from torch import nn

from embedctl.engine.errors import UnsupportedModel

#: Rows for which the weights are blocked; other numbers of rows work as well.
_TYPICAL_ROWS = 2048


class BlockedLinear(nn.Module):
    """x @ weight.T + bias in fp32, by oneDNN over weights that were reordered once.

    Measured against nn.Linear at MiniLM's shapes: 1.1x to 1.4x, because MKL packs the weights again in every
    call and adds the bias in a pass of its own.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._weight: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _TYPICAL_ROWS)
        self._bias = None if bias is None else bias.detach().clone()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            states, self._weight, self._bias, "none", [], ""
        )
        return product


class _SharedProduct:
    """One product of several layers that read the same states; the first of them computes it."""

    def __init__(self, linear: BlockedLinear, sizes: list[int]) -> None:
        self._linear = linear
        self._sizes = sizes
        self._states: torch.Tensor | None = None
        self._parts: list[torch.Tensor] = []

    def first(self, states: torch.Tensor) -> torch.Tensor:
        self._states = states
        part, *self._parts = torch.split(self._linear(states), self._sizes, dim=-1)
        return part

    def next(self, states: torch.Tensor) -> torch.Tensor:
        """Raises UnsupportedModel when the layers do not read the same states in the order of their names."""
        if states is not self._states:
            raise UnsupportedModel("Query, key and value of this model read different states.")
        part = self._parts.pop(0)
        if not self._parts:
            self._states = None
        return part


class _FirstProjection(nn.Module):
    def __init__(self, shared: _SharedProduct) -> None:
        super().__init__()
        self._shared = shared

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self._shared.first(states)


class _NextProjection(nn.Module):
    def __init__(self, shared: _SharedProduct) -> None:
        super().__init__()
        self._shared = shared

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self._shared.next(states)


#: Names under which attention modules keep the three projections of one input, in the order in which they
#: call them.
_PROJECTIONS = (
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
)


def is_blocked_available() -> bool:
    """True when torch has the oneDNN products that its own compiler uses."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def block_linears(model: nn.Module) -> None:
    """Replace the fp32 linear layers of a model, in place; query, key and value become one product."""
    for module in list(model.modules()):
        for names in _PROJECTIONS:
            layers = [getattr(module, name, None) for name in names]
            linears = [layer for layer in layers if type(layer) is nn.Linear]
            if len(linears) == len(names):
                _fuse(module, names, linears)
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear:
                setattr(module, name, BlockedLinear(layer.weight, layer.bias))


def _fuse(module: nn.Module, names: tuple[str, ...], layers: list[nn.Linear]) -> None:
    if len({layer.in_features for layer in layers}) > 1 or len({layer.bias is None for layer in layers}) > 1:
        return
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    shared = _SharedProduct(BlockedLinear(weight, bias), [layer.out_features for layer in layers])
    setattr(module, names[0], _FirstProjection(shared))
    for name in names[1:]:
        setattr(module, name, _NextProjection(shared))
