"""What a model's folder says about how its vectors are made."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embedctl.engine.byte_tokenizer import byte_tokenizer
from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.spec import dummy_spec, read_model_spec

RELEASE_2 = "sentence_transformers.models."
RELEASE_6 = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


class Model:
    """A model folder in the making: JSON files as objects, empty weights, a tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("config.json", {"model_type": "bert", "hidden_size": 8, "max_position_embeddings": 64})
        self.write("1_Pooling/config.json", {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True})
        self.modules("Transformer", "Pooling")
        (folder / "model.safetensors").write_bytes(b"weights")
        byte_tokenizer().save(str(folder / "tokenizer.json"))

    def write(self, name: str, value: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
        return path

    def update(self, name: str, **values: Any) -> None:
        self.write(name, json.loads((self.folder / name).read_text()) | values)

    def modules(self, *names: str, spelling: dict[str, str] | None = None) -> None:
        items = []
        for number, name in enumerate(names):
            kind = (spelling or {}).get(name) or (name if "." in name else RELEASE_2 + name)
            path = "" if number == 0 else f"{number}_{name.rpartition('.')[2]}"
            items.append({"idx": number, "name": str(number), "path": path, "type": kind})
        self.write("modules.json", items)

    def dense(self, number: int, **config: Any) -> None:
        defaults = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}
        path = self.write(f"{number}_Dense/config.json", defaults | config)
        path.with_name("model.safetensors").write_bytes(b"dense")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


def test_the_plainest_folder_is_read(model: Model) -> None:
    spec = read_model_spec(model.folder)

    assert spec.pooling == ("mean",)
    assert (spec.embedding_dim, spec.max_tokens, spec.metric) == (8, 64, "cosine")
    assert not spec.normalize
    assert spec.include_prompt
    assert spec.weight_files == (model.folder / "model.safetensors",)


@pytest.mark.parametrize("spelling", [{}, RELEASE_6])
def test_modules_are_known_by_their_last_component_in_every_release(
    model: Model, spelling: dict[str, str]
) -> None:
    model.modules("Transformer", "Pooling", "Dense", "Normalize", spelling=spelling)
    model.dense(2, in_features=8, out_features=4)

    spec = read_model_spec(model.folder)

    assert spec.normalize
    assert [dense.out_features for dense in spec.dense] == [4]


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        # the order of sentence-transformers, whatever the order in the file
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
    ],
)
def test_both_pooling_formats_are_read(
    model: Model, config: dict[str, Any], pooling: tuple[str, ...]
) -> None:
    model.write("1_Pooling/config.json", {"embedding_dimension": 8} | config)

    spec = read_model_spec(model.folder)

    assert spec.pooling == pooling
    assert spec.embedding_dim == 8 * len(pooling)


def test_dense_layers_follow_each_other(model: Model) -> None:
    model.modules("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    model.dense(2, in_features=8, out_features=32, activation_function="torch.nn.modules.linear.Identity")
    model.dense(3, in_features=32, out_features=4, bias=False)

    spec = read_model_spec(model.folder)

    assert [dense.activation for dense in spec.dense] == ["identity", "tanh"]
    assert [dense.has_bias for dense in spec.dense] == [True, False]
    assert spec.embedding_dim == 4


@pytest.mark.parametrize(
    ("declared", "max_tokens"),
    [
        # what sentence-transformers cuts at is below what tokenizer and positions say
        ({"sentence_bert_config.json": {"max_seq_length": 16}}, 16),
        ({"sentence_roberta_config.json": {"max_seq_length": 17}}, 17),
        ({"tokenizer_config.json": {"model_max_length": 32}}, 32),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 64),
        # a tokenizer that claims more than there are positions
        ({"sentence_bert_config.json": {"max_seq_length": 512}}, 64),
        ({"config.json": {"model_type": "roberta", "hidden_size": 8, "max_position_embeddings": 514}}, 512),
        (
            {
                "config.json": {
                    "model_type": "xlm-roberta",
                    "hidden_size": 8,
                    "max_position_embeddings": 514,
                    "pad_token_id": 1,
                },
                "tokenizer_config.json": {"model_max_length": 514},
            },
            512,
        ),
    ],
)
def test_an_input_is_as_long_as_the_smallest_declared_limit(
    model: Model, declared: dict[str, Any], max_tokens: int
) -> None:
    for name, value in declared.items():
        model.write(name, value)

    assert read_model_spec(model.folder).max_tokens == max_tokens


def test_a_model_that_declares_no_limit_is_refused(model: Model) -> None:
    model.write("config.json", {"model_type": "t5", "hidden_size": 8})

    with pytest.raises(ModelFilesError, match="max_seq_length"):
        read_model_spec(model.folder)


@pytest.mark.parametrize(
    ("usage", "query", "document"),
    [
        ({}, "", ""),
        ({"prompts": {"query": "query: ", "passage": "passage: "}}, "query: ", "passage: "),
        ({"prompts": {"query": "q: ", "document": "d: ", "passage": "p: "}}, "q: ", "d: "),
        # a release that fills in empty prompts when it saves does not hide the ones that are there
        ({"prompts": {"query": "q: ", "document": "", "passage": "p: "}}, "q: ", "p: "),
        ({"prompts": {"retrieval": "r: "}, "default_prompt_name": "retrieval"}, "r: ", "r: "),
        ({"prompts": {"query": "q: "}, "default_prompt_name": "query"}, "q: ", ""),
    ],
)
def test_prompts_of_queries_and_documents_are_found(
    model: Model, usage: dict[str, Any], query: str, document: str
) -> None:
    model.write("config_sentence_transformers.json", usage)

    spec = read_model_spec(model.folder)

    assert (spec.query_prompt, spec.document_prompt) == (query, document)


def test_metric_truncation_lower_case_and_prompt_exclusion_are_honoured(model: Model) -> None:
    model.write("config_sentence_transformers.json", {"similarity_fn_name": "dot", "truncate_dim": 4})
    model.write("sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    model.update("1_Pooling/config.json", include_prompt=False)

    spec = read_model_spec(model.folder)

    assert (spec.metric, spec.truncate_dim, spec.do_lower_case) == ("dot", 4, True)
    assert not spec.include_prompt


def test_shards_are_found_through_their_index(model: Model) -> None:
    (model.folder / "model.safetensors").unlink()
    names = ["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"]
    model.write("model.safetensors.index.json", {"weight_map": {"a": names[0], "b": names[1], "c": names[0]}})
    for name in names:
        (model.folder / name).write_bytes(b"shard")

    assert [path.name for path in read_model_spec(model.folder).weight_files] == sorted(names)


def test_a_transformer_in_its_own_folder_is_read_there(model: Model) -> None:
    inner = model.folder / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (model.folder / name).rename(inner / name)
    modules = json.loads((model.folder / "modules.json").read_text())
    model.write("modules.json", [modules[0] | {"path": "0_Transformer"}, modules[1]])

    spec = read_model_spec(model.folder)

    assert spec.folder == inner
    assert spec.tokenizer_file == inner / "tokenizer.json"


def test_a_folder_without_modules_needs_its_pooling_named(model: Model) -> None:
    (model.folder / "modules.json").unlink()

    with pytest.raises(ModelFilesError, match="name it"):
        read_model_spec(model.folder)

    assert read_model_spec(model.folder, pooling="cls").pooling == ("cls",)
    assert read_model_spec(model.folder, pooling="cls, mean").embedding_dim == 16


def test_a_named_pooling_wins_over_the_files(model: Model) -> None:
    assert read_model_spec(model.folder, pooling="lasttoken").pooling == ("lasttoken",)


def _other_module(model: Model) -> None:
    model.modules("Transformer", "Pooling", "WordWeights")


def _foreign_module(model: Model) -> None:
    model.modules("Transformer", "Pooling", "evil.models.Normalize")


def _normalize_before_dense(model: Model) -> None:
    model.modules("Transformer", "Pooling", "Normalize", "Dense")


def _unknown_pooling(model: Model) -> None:
    model.update("1_Pooling/config.json", pooling_mode="attention")


def _unknown_pooling_switch(model: Model) -> None:
    model.update("1_Pooling/config.json", pooling_mode_first_layer=True)


def _no_pooling_switched_on(model: Model) -> None:
    model.update("1_Pooling/config.json", pooling_mode_mean_tokens=False)


def _imported_activation(model: Model) -> None:
    model.modules("Transformer", "Pooling", "Dense")
    model.dense(2, in_features=8, out_features=8, activation_function="os.system")


def _residual(model: Model) -> None:
    model.modules("Transformer", "Pooling", "Dense")
    model.dense(2, in_features=8, out_features=8, use_residual=True)


def _remote_code(model: Model) -> None:
    model.update("config.json", auto_map={"AutoModel": "modeling.Model"})


def _adapter(model: Model) -> None:
    model.write("adapter_config.json", {})


def _manhattan(model: Model) -> None:
    model.write("config_sentence_transformers.json", {"similarity_fn_name": "manhattan"})


def _query_expansion(model: Model) -> None:
    model.write("sentence_bert_config.json", {"query_expansion": {"strategy": "fixed", "length": 32}})


@pytest.mark.parametrize(
    "spoil",
    [
        _other_module,
        _foreign_module,
        _normalize_before_dense,
        _unknown_pooling,
        _unknown_pooling_switch,
        _no_pooling_switched_on,
        _imported_activation,
        _residual,
        _remote_code,
        _adapter,
        _manhattan,
        _query_expansion,
    ],
)
def test_what_embedctl_does_not_know_is_refused_and_never_guessed(model: Model, spoil: Any) -> None:
    spoil(model)

    with pytest.raises(UnsupportedModel, match=str(model.folder)) as caught:
        read_model_spec(model.folder)

    assert "\n" not in str(caught.value)


def _no_weights(model: Model) -> str:
    (model.folder / "model.safetensors").unlink()
    return "no model.safetensors"


def _pickled_weights(model: Model) -> str:
    (model.folder / "model.safetensors").rename(model.folder / "pytorch_model.bin")
    return "convert them to model.safetensors"


def _pointer_for_weights(model: Model) -> str:
    (model.folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"
    )
    return "git lfs pull"


def _missing_shard(model: Model) -> str:
    (model.folder / "model.safetensors").unlink()
    model.write("model.safetensors.index.json", {"weight_map": {"a": "model-1.safetensors"}})
    return "model-1.safetensors is missing"


def _shard_elsewhere(model: Model) -> str:
    (model.folder / "model.safetensors").unlink()
    model.write("model.safetensors.index.json", {"weight_map": {"a": "../model-1.safetensors"}})
    return "no safetensors file beside it"


def _module_elsewhere(model: Model) -> str:
    modules = json.loads((model.folder / "modules.json").read_text())
    model.write("modules.json", [modules[0], modules[1] | {"path": "../1_Pooling"}])
    return "outside the model"


def _no_tokenizer(model: Model) -> str:
    (model.folder / "tokenizer.json").unlink()
    return "AutoTokenizer"


def _no_config(model: Model) -> str:
    (model.folder / "config.json").unlink()
    return "config.json is missing"


def _broken_json(model: Model) -> str:
    (model.folder / "config.json").write_text("{")
    return "cannot be read as JSON"


def _huge_json(model: Model) -> str:
    with (model.folder / "config.json").open("wb") as file:
        file.truncate(17 * 2**20)
    return "17825792 bytes"


def _other_hidden_size(model: Model) -> str:
    model.update("config.json", hidden_size=16)
    return "hidden_size 16"


def _dense_of_other_size(model: Model) -> str:
    model.modules("Transformer", "Pooling", "Dense")
    model.dense(2, in_features=9, out_features=8)
    return "takes 9 features"


def _unknown_default_prompt(model: Model) -> str:
    model.write("config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": "query"})
    return "default prompt 'query'"


def _bad_truncate_dim(model: Model) -> str:
    model.write("config_sentence_transformers.json", {"truncate_dim": -1})
    return "truncate_dim -1"


@pytest.mark.parametrize(
    "spoil",
    [
        _no_weights,
        _pickled_weights,
        _pointer_for_weights,
        _missing_shard,
        _shard_elsewhere,
        _module_elsewhere,
        _no_tokenizer,
        _no_config,
        _broken_json,
        _huge_json,
        _other_hidden_size,
        _dense_of_other_size,
        _unknown_default_prompt,
        _bad_truncate_dim,
    ],
)
def test_missing_and_unsafe_files_are_named_with_the_fix(model: Model, spoil: Any) -> None:
    reason = spoil(model)

    with pytest.raises(ModelFilesError, match=reason) as caught:
        read_model_spec(model.folder)

    assert str(model.folder) in str(caught.value)


def test_the_dummy_needs_no_files() -> None:
    spec = dummy_spec(8, delay_ms=5)

    assert (spec.is_dummy, spec.embedding_dim, spec.delay_ms, spec.has_own_tokenizer) == (True, 8, 5, False)


def test_a_dummy_over_a_model_takes_its_tokenizer_and_limits(model: Model) -> None:
    model.write("config_sentence_transformers.json", {"prompts": {"query": "q: "}})
    base = read_model_spec(model.folder)

    spec = dummy_spec(8, base=base)

    assert spec.tokenizer_file == base.tokenizer_file
    assert (spec.max_tokens, spec.query_prompt, spec.has_own_tokenizer) == (64, "q: ", True)


def test_reading_chunking_and_naming_a_model_loads_no_torch() -> None:
    code = (
        "import sys, embedctl.engine.spec, embedctl.engine.tokenizer, embedctl.pipeline.chunking, "
        "embedctl.pipeline.models, embedctl.pipeline.spaces\n"
        "embedctl.engine.tokenizer.load_tokenizer(embedctl.engine.spec.dummy_spec(8)).encode_inputs(['a'])\n"
        "print([name for name in ('torch', 'transformers', 'huggingface_hub') if name in sys.modules])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
