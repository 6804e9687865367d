"""What follows the transformer: pooling, dense layers, truncation, normalisation. All of it in fp32."""

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import normalize

from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.packing import PackedBatch
from embedctl.engine.pooling import PackedStates, check_poolings, pool
from embedctl.engine.spec import DenseSpec, ModelSpec
from embedctl.engine.transformer import Transformer

#: Names are an allow-list: nothing is imported because a model's file says so.
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class Head:
    """Token states in, vectors out."""

    def __init__(self, spec: ModelSpec, dimensions: int | None, device: torch.device) -> None:
        check_poolings(spec.pooling)
        self.embedding_dim = _checked_dimensions(spec, dimensions)
        self._spec = spec
        self._dense = nn.Sequential(*(_load_dense(dense) for dense in spec.dense)).to(device).eval()

    def __call__(self, states: PackedStates) -> torch.Tensor:
        """(num_sequences, embedding_dim) float32, unit length where the model normalises."""
        vectors = self._dense(pool(states, self._spec.pooling))
        # Cut first: a cut unit vector is no unit vector.
        vectors = vectors[:, : self.embedding_dim]
        return normalize(vectors, dim=1) if self._spec.normalize else vectors


def vectors_of(spec: ModelSpec, transformer: Transformer, head: Head, packed: PackedBatch) -> torch.Tensor:
    """(num_sequences, embedding_dim) float32."""
    hidden = transformer(packed).float()
    cu_seqlens = torch.from_numpy(packed.cu_seqlens).to(hidden.device, torch.int64)
    has_skipped = not spec.include_prompt and packed.num_prompt_tokens.any()
    num_skipped = torch.from_numpy(packed.num_prompt_tokens).to(cu_seqlens) if has_skipped else None
    return head(PackedStates(hidden, cu_seqlens, num_skipped))


def _checked_dimensions(spec: ModelSpec, dimensions: int | None) -> int:
    if dimensions is None:
        return spec.truncate_dim or spec.embedding_dim
    if not 1 <= dimensions <= spec.embedding_dim:
        raise UnsupportedModel(
            f"The model has {spec.embedding_dim} dimensions; they cannot be cut to {dimensions}."
        )
    return dimensions


def _load_dense(spec: DenseSpec) -> nn.Module:
    if spec.activation not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"Activation {spec.activation!r} of a dense layer is not one of {', '.join(_ACTIVATIONS)}."
        )
    linear = nn.Linear(spec.in_features, spec.out_features, bias=spec.has_bias)
    try:
        weights = {name.removeprefix("linear."): tensor for name, tensor in load_file(spec.weights).items()}
        linear.load_state_dict(weights)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ModelFilesError(
            f"{spec.weights} does not hold the dense layer that its config describes: {error}"
        ) from error
    return nn.Sequential(linear.float(), _ACTIVATIONS[spec.activation]())
