"""The transformer itself: loaded from safetensors, run packed where its family allows, padded where not."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from embedctl.engine.attention import PACKED_ATTENTION, equal_runs
from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.packing import PackedBatch, TokenIds
from embedctl.engine.positions import position_offset
from embedctl.engine.spec import ModelSpec


class Transformer(Protocol):
    """A loaded model that turns a packed batch into the states of its real tokens."""

    is_padded: bool

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        """(num_tokens, hidden_size), in the order of the packed tokens."""
        ...


def load_transformer(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model in evaluation mode, with transformers' own eager attention.

    Local safetensors only, no remote code. Raises ModelFilesError or UnsupportedModel.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model, info = AutoModel.from_pretrained(
            spec.folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ModelFilesError(f"The weights in {spec.folder} cannot be loaded: {error}") from error
    except (ImportError, KeyError, ValueError) as error:
        raise UnsupportedModel(
            f"transformers cannot load {spec.folder} ({spec.model_type}): {error}"
        ) from error
    _check_complete(spec, info)
    loaded: PreTrainedModel = model.to(device).eval().requires_grad_(False)
    return loaded


def _check_complete(spec: ModelSpec, info: Mapping[str, Any]) -> None:
    """Raises ModelFilesError for missing weights, which transformers would fill at random."""
    # the model's own pooler is not used
    missing = [name for name in info["missing_keys"] if not name.startswith("pooler.")]
    if missing or info["mismatched_keys"]:
        named = ", ".join(sorted([*missing, *(str(key[0]) for key in info["mismatched_keys"])])[:5])
        raise ModelFilesError(f"The weights in {spec.folder} do not fit its config.json: see {named}.")


class PackedTransformer:
    """Runs sequences concatenated, so that every computed token is a real one."""

    is_padded = False

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._offset = position_offset(model)
        self._extra = _extra_arguments(model)
        model.set_attn_implementation(PACKED_ATTENTION)

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        device = self._model.device
        states: torch.Tensor = self._model(
            input_ids=torch.from_numpy(packed.input_ids).to(device).unsqueeze(0),
            position_ids=torch.from_numpy(packed.position_ids + self._offset).to(device).unsqueeze(0),
            packed_runs=equal_runs(packed.cu_seqlens),
            **self._extra,
        ).last_hidden_state
        return states.squeeze(0)


class PaddedTransformer:
    """Runs sequences as rows of the longest one's length, for families whose attention cannot be replaced."""

    is_padded = True

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._extra = _extra_arguments(model)
        self._pad_id = model.config.pad_token_id or 0
        if model._supports_sdpa:
            model.set_attn_implementation("sdpa")

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        device = self._model.device
        rows = torch.split(torch.from_numpy(packed.input_ids), packed.seqlens.tolist())
        input_ids = pad_sequence(list(rows), batch_first=True, padding_value=self._pad_id)
        mask = torch.arange(input_ids.shape[1]) < torch.from_numpy(packed.seqlens).unsqueeze(1)
        input_ids, mask = input_ids.to(device), mask.to(device)
        states: torch.Tensor = self._model(
            input_ids=input_ids, attention_mask=mask.long(), **self._extra
        ).last_hidden_state
        return states[mask]


def states_alone(model: PreTrainedModel, ids: TokenIds) -> torch.Tensor:
    """(len(ids), hidden_size): one sequence alone, by the model's own attention and positions."""
    input_ids = torch.from_numpy(ids.astype(np.int64)).to(model.device).unsqueeze(0)
    states: torch.Tensor = model(
        input_ids=input_ids, attention_mask=torch.ones_like(input_ids), **_extra_arguments(model)
    ).last_hidden_state
    return states.squeeze(0)


def vocab_size_of(model: PreTrainedModel) -> int:
    """Rows of the embedding table: ids at or above it cannot be read."""
    table: torch.Tensor = model.get_input_embeddings().get_parameter("weight")
    return table.shape[0]


def _extra_arguments(model: PreTrainedModel) -> dict[str, Any]:
    """Decoders would keep their keys and values for tokens that are never generated."""
    return {"use_cache": False} if getattr(model.config, "use_cache", False) else {}
