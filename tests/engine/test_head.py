"""Pooling, dense layers, truncation and normalisation: as sentence-transformers does them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers.sentence_transformer.modules import Pooling

from embedctl.engine.dummy import DummyEngine
from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.head import Head
from embedctl.engine.pooling import POOLINGS, PackedStates
from embedctl.engine.spec import DenseSpec, dummy_spec

HIDDEN = 6
LENGTHS = (4, 1, 7, 3)
CPU = torch.device("cpu")


def spec(**changes):
    return replace(dummy_spec(HIDDEN), normalize=False, **changes)


def token_states():
    return torch.randn(sum(LENGTHS), HIDDEN, generator=torch.Generator().manual_seed(3))


def packed_states(num_skipped=None):
    cu_seqlens = torch.tensor([0, *np.cumsum(LENGTHS)])
    return PackedStates(
        token_states(), cu_seqlens, None if num_skipped is None else torch.tensor(num_skipped)
    )


def by_sentence_transformers(modes, prompt_length=None):
    rows = token_states().split(LENGTHS)
    padded = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=9.0)
    mask = torch.arange(padded.shape[1]) < torch.tensor(LENGTHS).unsqueeze(1)
    pooling = Pooling(HIDDEN, pooling_mode=modes, include_prompt=prompt_length is None)
    features = {"token_embeddings": padded, "attention_mask": mask.long()}
    if prompt_length is not None:
        features["prompt_length"] = prompt_length
    return pooling(features)["sentence_embedding"]


@pytest.mark.parametrize("mode", POOLINGS)
def test_each_pooling_is_that_of_sentence_transformers(mode):
    vectors = Head(spec(pooling=(mode,)), None, CPU)(packed_states())

    torch.testing.assert_close(vectors, by_sentence_transformers(mode))


@pytest.mark.parametrize("mode", POOLINGS)
def test_each_pooling_leaves_the_prompt_out(mode):
    vectors = Head(spec(pooling=(mode,)), None, CPU)(packed_states(num_skipped=[2, 2, 2, 2]))

    torch.testing.assert_close(vectors[[0, 2, 3]], by_sentence_transformers(mode, prompt_length=2)[[0, 2, 3]])


@pytest.mark.parametrize("mode", POOLINGS)
def test_an_input_that_is_all_prompt_keeps_its_last_token(mode):
    vectors = Head(spec(pooling=(mode,)), None, CPU)(packed_states(num_skipped=[0, 5, 0, 0]))

    assert torch.isfinite(vectors).all()
    assert vectors[1].any()


def test_several_poolings_are_concatenated_in_their_order():
    modes = ("max", "cls", "mean")

    vectors = Head(spec(pooling=modes, embedding_dim=3 * HIDDEN), None, CPU)(packed_states())

    torch.testing.assert_close(vectors, torch.cat([by_sentence_transformers(mode) for mode in modes], dim=1))


def test_dense_layers_stack_then_the_vector_is_cut_then_normalised(tmp_path):
    first = save_dense(tmp_path / "first.safetensors", HIDDEN, 10, "tanh")
    second = save_dense(tmp_path / "second.safetensors", 10, 8, "identity", has_bias=False)
    cut = replace(spec(dense=(first, second), embedding_dim=8), normalize=True)

    vectors = Head(cut, 5, CPU)(packed_states())

    expected = by_sentence_transformers("mean")
    expected = torch.tanh(expected @ weights(10, HIDDEN).T + bias(10)) @ weights(8, 10).T
    expected = torch.nn.functional.normalize(expected[:, :5], dim=1)
    torch.testing.assert_close(vectors, expected)


def test_the_files_own_truncation_holds_unless_another_is_asked_for():
    cut = spec(truncate_dim=4)

    assert Head(cut, None, CPU).embedding_dim == DummyEngine(cut).embedding_dim == 4
    assert Head(cut, 5, CPU).embedding_dim == DummyEngine(cut, dimensions=5).embedding_dim == 5


def test_a_model_that_does_not_normalise_keeps_its_lengths():
    vectors = Head(spec(), 3, CPU)(packed_states())

    torch.testing.assert_close(vectors, by_sentence_transformers("mean")[:, :3])


def test_an_unknown_pooling_or_activation_is_refused_with_what_is_known(tmp_path):
    with pytest.raises(UnsupportedModel, match="'attention' is not one of cls, "):
        Head(spec(pooling=("attention",)), None, CPU)
    with pytest.raises(UnsupportedModel, match="'swiglu' of a dense layer is not one of identity, "):
        Head(spec(dense=(save_dense(tmp_path / "a.safetensors", 6, 6, "swiglu"),)), None, CPU)


def test_a_dense_layer_of_another_shape_than_its_config_says_is_refused(tmp_path):
    dense = replace(save_dense(tmp_path / "a.safetensors", HIDDEN, 10, "tanh"), out_features=11)

    with pytest.raises(ModelFilesError, match=r"a\.safetensors does not hold the dense layer"):
        Head(spec(dense=(dense,), embedding_dim=11), None, CPU)


def weights(rows: int, columns: int) -> torch.Tensor:
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


def bias(rows: int) -> torch.Tensor:
    return torch.linspace(0, 1, rows)


def save_dense(path: Path, columns: int, rows: int, activation: str, has_bias: bool = True) -> DenseSpec:
    tensors = {"linear.weight": weights(rows, columns)} | ({"linear.bias": bias(rows)} if has_bias else {})
    save_file(tensors, path)
    return DenseSpec(path, columns, rows, has_bias, activation)
