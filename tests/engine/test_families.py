"""Tiny random models of each family: vectors are those of transformers' own code, whatever the neighbours."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel

from embedctl.engine import encoder as encoder_module
from embedctl.engine.config import EngineConfig
from embedctl.engine.engine import load_engine
from embedctl.engine.errors import ModelFilesError, SelfCheckFailed, UnsupportedModel
from embedctl.engine.packing import pack
from embedctl.engine.spec import ModelSpec

VOCAB_SIZE = 200
WAIT_S = 120
SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 130,
    "initializer_range": 0.3,  # large, so that attention matters and leaks would show
}
PACKED = {
    "bert": {},
    "roberta": {"pad_token_id": 1},
    "xlm-roberta": {"pad_token_id": 1},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "modernbert": {
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0},
}
PADDED = {
    "mpnet": {"pad_token_id": 1},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 16,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
}
FAMILIES = {**PACKED, **PADDED}


def make_model(folder: Path, family: str) -> Path:
    if not (folder / "model.safetensors").exists():
        torch.manual_seed(7)
        config = AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family]})
        AutoModel.from_config(config).eval().save_pretrained(folder)
    return folder


def make_spec(folder: Path, **changes: object) -> ModelSpec:
    spec = ModelSpec(
        folder=folder,
        config=json.loads((folder / "config.json").read_text()),
        weight_files=(folder / "model.safetensors",),
        tokenizer_file=folder / "tokenizer.json",
        pooling=("mean",),
        include_prompt=True,
        dense=(),
        normalize=True,
        embedding_dim=32,
        max_tokens=120,
        query_prompt="",
        document_prompt="",
        do_lower_case=False,
        metric="cosine",
    )
    return replace(spec, **changes)


@pytest.fixture(scope="session")
def model_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def spec(model_root: Path, family: str) -> ModelSpec:
    return make_spec(make_model(model_root / family, family))


def inputs(*lengths: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(3, VOCAB_SIZE, length).astype(np.int32) for length in lengths]


def by_transformers(spec: ModelSpec, sequences: list[np.ndarray]) -> np.ndarray:
    """Mean of each sequence's states, one sequence at a time, positions and masks left to the model."""
    model = AutoModel.from_pretrained(spec.folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        states = [model(torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0] for ids in sequences]
        vectors = torch.stack([state.mean(dim=0) for state in states])
    return torch.nn.functional.normalize(vectors, dim=1).numpy()


def test_vectors_are_those_of_transformers_for_every_family(spec, family):
    sequences = inputs(1, 120, 7, 7, 64, 33, 7, 2, 120)
    engine = load_engine(spec)

    vectors = engine.submit(sequences).result(WAIT_S)

    engine.close()
    np.testing.assert_allclose(vectors, by_transformers(spec, sequences), atol=1e-5)
    assert engine.is_padded == (family in PADDED)


def test_a_vector_does_not_depend_on_its_neighbours(spec):
    sequences = inputs(9, 50, 9, 120, 1, 50)
    engine = load_engine(spec)

    together = engine.submit(sequences).result(WAIT_S)
    alone = np.concatenate([engine.submit([ids]).result(WAIT_S) for ids in sequences])
    unsorted = engine.step(pack(sequences)).result()

    engine.close()
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(unsorted, alone, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"], indirect=True)
def test_half_precision_runs_on_a_cpu_close_to_fp32(spec, precision):
    engine = load_engine(spec, precision)

    vectors = engine.submit(inputs(5, 20, 100)).result(WAIT_S)

    engine.close()
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = (vectors * by_transformers(spec, inputs(5, 20, 100))).sum(axis=1)
    assert cosines.min() > 0.99


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_half_precision_vector_that_is_not_finite_is_computed_in_fp32(spec, monkeypatch):
    engine = load_engine(spec, "fp16")
    run = type(engine._encoder._transformer).__call__

    def overflowing(transformer, packed):
        states = run(transformer, packed)
        return states if states.dtype == torch.float32 else states * torch.inf

    monkeypatch.setattr(type(engine._encoder._transformer), "__call__", overflowing)

    vectors = engine.submit(inputs(5, 9)).result(WAIT_S)

    engine.close()
    np.testing.assert_allclose(vectors, by_transformers(spec, inputs(5, 9)), atol=1e-5)


@pytest.mark.parametrize("family", ["modernbert"], indirect=True)
def test_a_window_is_honoured_block_by_block_in_long_inputs(spec, monkeypatch):
    monkeypatch.setattr("embedctl.engine.attention._WINDOW_BLOCK", 32)
    engine = load_engine(spec)

    vectors = engine.submit(inputs(120, 31, 120)).result(WAIT_S)

    engine.close()
    np.testing.assert_allclose(vectors, by_transformers(spec, inputs(120, 31, 120)), atol=1e-5)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_family_whose_packed_vectors_differ_runs_padded_instead(spec, monkeypatch, caplog):
    monkeypatch.setattr("embedctl.engine.transformer.position_offset", lambda model: 3)

    engine = load_engine(spec)

    vectors = engine.submit(inputs(5, 9)).result(WAIT_S)
    engine.close()
    assert engine.is_padded
    assert "packed computation of bert models" in caplog.text
    np.testing.assert_allclose(vectors, by_transformers(spec, inputs(5, 9)), atol=1e-5)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_family_that_fails_every_check_is_refused_by_its_name(spec, monkeypatch):
    monkeypatch.setattr(encoder_module, "_ways", lambda **_: iter([(Shuffling, False)]))

    with pytest.raises(SelfCheckFailed, match=r"bert models .* differs .* cosine"):
        load_engine(spec)


class Shuffling(encoder_module.PackedTransformer):
    """Puts each token's state where its neighbour's belongs."""

    def __call__(self, packed):
        return super().__call__(packed).roll(1, dims=0)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_packed_attention_refuses_a_call_that_is_not_packed(spec):
    model = encoder_module.load_transformer(spec, torch.float32, torch.device("cpu"))
    model.set_attn_implementation("embedctl_packed")

    with pytest.raises(UnsupportedModel, match="does not pass the packed sequences"):
        model(torch.ones(2, 5, dtype=torch.long), attention_mask=torch.ones(2, 5))


@pytest.mark.parametrize("family", ["bert"], indirect=True)
@pytest.mark.parametrize(
    ("precision", "dimensions", "message"),
    [
        ("int8", None, "'int8' is not available; use one of fp32, bf16, fp16"),
        ("fp32", 33, "has 32 dimensions; they cannot be cut to 33"),
        ("fp32", 0, "has 32 dimensions; they cannot be cut to 0"),
    ],
)
def test_what_the_engine_cannot_do_is_said_at_start(spec, precision, dimensions, message):
    with pytest.raises(UnsupportedModel, match=message):
        load_engine(spec, precision, dimensions)


def test_weights_that_lack_a_layer_are_refused_not_filled_at_random(tmp_path):
    folder = make_model(tmp_path, "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))

    with pytest.raises(ModelFilesError, match=r"encoder\.layer\.2"):
        load_engine(make_spec(folder))


def test_damaged_weights_and_pickled_weights_are_refused_with_one_sentence(tmp_path):
    folder = make_model(tmp_path, "bert")
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ModelFilesError, match="cannot be loaded"):
        load_engine(make_spec(folder))

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ModelFilesError, match="cannot be loaded"):
        load_engine(make_spec(folder))


def test_an_unknown_model_type_is_refused_by_its_name(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "hydra"}')

    with pytest.raises(UnsupportedModel, match="hydra"):
        load_engine(make_spec(tmp_path))


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_threads_can_be_set(spec):
    before = torch.get_num_threads()

    load_engine(spec, config=EngineConfig(num_threads=1)).close()

    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_transformers_is_quiet_while_loading(model_root, capfd):
    logging.getLogger("transformers").setLevel(logging.WARNING)

    load_engine(make_spec(make_model(model_root / "bert", "bert"))).close()

    assert capfd.readouterr().err == ""
    assert transformers.__version__.startswith("5.")
