"""What a model's folder says about how its vectors are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.spec_files import (
    find_weight_files,
    read_json,
    read_optional_json,
    require_tokenizer_file,
)
from embedctl.engine.spec_limits import max_tokens_of
from embedctl.engine.spec_modules import DenseSpec, ModuleStack, pooling_modes, read_modules

__all__ = ["DUMMY_MODEL_TYPE", "DenseSpec", "ModelSpec", "dummy_spec", "read_model_spec"]

#: config["model_type"] of the model without weights that rehearsals and tests use.
DUMMY_MODEL_TYPE = "embedctl-dummy"
#: Tokens that the dummy reads when it brings its own tokenizer: a token is a byte there.
DUMMY_MAX_TOKENS = 512

_METRICS = {None: "cosine", "cosine": "cosine", "dot": "dot", "dot_score": "dot"}
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One embedding model as its files describe it; nothing is loaded yet.

    folder: the Transformer module's own folder, with config.json and the weights.
    config: config.json.
    weight_files: safetensors of the transformer, one file or the shards of its index; empty for the dummy.
    tokenizer_file: tokenizer.json; of the dummy's own byte tokenizer a file that need not exist.
    pooling: modes whose vectors are concatenated in this order: "cls", "max", "mean", "mean_sqrt_len_tokens",
        "weightedmean", "lasttoken".
    include_prompt: False when the prompt's tokens are left out of pooling.
    embedding_dim: length of a vector after pooling and dense layers, before truncation.
    max_tokens: tokens per input, specials included: the smallest of the limits that the files declare.
    do_lower_case: text is lower-cased before the tokenizer sees it.
    metric: "cosine" or "dot".
    truncate_dim: dimensions that the model's files ask to keep; None keeps all.
    """

    folder: Path
    config: Mapping[str, Any]
    weight_files: tuple[Path, ...]
    tokenizer_file: Path
    pooling: tuple[str, ...]
    include_prompt: bool
    dense: tuple[DenseSpec, ...]
    normalize: bool
    embedding_dim: int
    max_tokens: int
    query_prompt: str
    document_prompt: str
    do_lower_case: bool
    metric: str
    truncate_dim: int | None = None

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type", ""))

    @property
    def is_dummy(self) -> bool:
        """True for the rehearsal model: no weights, vectors that depend on the token ids only."""
        return self.model_type == DUMMY_MODEL_TYPE

    @property
    def has_own_tokenizer(self) -> bool:
        """False for a dummy over the built-in byte tokenizer."""
        return not (self.is_dummy and self.config.get("tokenizer") == "bytes")

    @property
    def delay_ms(self) -> float:
        """Milliseconds that a dummy waits per step; 0 for real models."""
        return float(self.config.get("delay_ms", 0.0)) if self.is_dummy else 0.0


def read_model_spec(folder: Path, *, pooling: str | None = None) -> ModelSpec:
    """Read a sentence-transformers folder, or a plain transformers folder with the pooling named.

    pooling: one mode or several joined by commas; it wins over modules.json. Reads JSON only, no weights.
    Raises ModelFilesError when a file is missing or unsafe, UnsupportedModel when it asks for what embedctl
    cannot do.
    """
    folder = folder.absolute()
    stack = _modules_of(folder, pooling)
    config = read_json(stack.folder / "config.json")
    _refuse_remote_code(stack.folder, config)
    settings = _transformer_settings(stack.folder)
    tokenizer_config = read_optional_json(stack.folder / "tokenizer_config.json")
    hidden_size = _hidden_size(stack, config)
    query_prompt, document_prompt, metric, truncate_dim = _usage(folder)
    return ModelSpec(
        folder=stack.folder,
        config=config,
        weight_files=find_weight_files(stack.folder),
        tokenizer_file=require_tokenizer_file(stack.folder),
        pooling=stack.pooling,
        include_prompt=stack.include_prompt,
        dense=stack.dense,
        normalize=stack.normalize,
        embedding_dim=stack.embedding_dim(hidden_size),
        max_tokens=max_tokens_of(stack.folder, config, settings, tokenizer_config),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        do_lower_case=bool(settings.get("do_lower_case", False)),
        metric=metric,
        truncate_dim=truncate_dim,
    )


def dummy_spec(dim: int, *, base: ModelSpec | None = None, delay_ms: float = 0.0) -> ModelSpec:
    """A model without weights for rehearsals: over `base`'s tokenizer, prompts and limits, or over bytes.

    dim: length of its vectors. delay_ms: how long a step pretends to work; it changes no vector.
    """
    folder = base.folder if base else Path("dummy")
    config = {
        "model_type": DUMMY_MODEL_TYPE,
        "tokenizer": "base" if base else "bytes",
        "hidden_size": dim,
        "delay_ms": delay_ms,
    }
    return ModelSpec(
        folder=folder,
        config=config,
        weight_files=(),
        tokenizer_file=base.tokenizer_file if base else folder / "tokenizer.json",
        pooling=("mean",),
        include_prompt=base.include_prompt if base else True,
        dense=(),
        normalize=True,
        embedding_dim=dim,
        max_tokens=base.max_tokens if base else DUMMY_MAX_TOKENS,
        query_prompt=base.query_prompt if base else "",
        document_prompt=base.document_prompt if base else "",
        do_lower_case=base.do_lower_case if base else False,
        metric="cosine",
    )


def _modules_of(folder: Path, pooling: str | None) -> ModuleStack:
    """modules.json with the explicit pooling over it; without modules.json the pooling must be explicit."""
    modes = pooling_modes(pooling.split(","), "the pooling option") if pooling is not None else None
    if (folder / "modules.json").is_file():
        return read_modules(folder, pooling=modes)
    if modes is None:
        raise ModelFilesError(
            f"{folder} has no modules.json, so its pooling is unknown: name it (for example mean or cls), "
            "as the model's card says."
        )
    # cosine compares directions only, so unit length loses nothing
    return ModuleStack(folder=folder, pooling=modes, include_prompt=True, dense=(), normalize=True)


def _refuse_remote_code(folder: Path, config: Mapping[str, Any]) -> None:
    if "auto_map" in config:
        raise UnsupportedModel(
            f"{folder / 'config.json'} asks for the model's own Python code (auto_map), which embedctl "
            "never runs: take a model of a type that transformers has, or remove auto_map if it has this one."
        )
    if (folder / "adapter_config.json").is_file():
        raise UnsupportedModel(
            f"{folder / 'adapter_config.json'} is an adapter over other weights: "
            "merge it (peft's merge_and_unload) and save the whole model."
        )


def _transformer_settings(folder: Path) -> Mapping[str, Any]:
    """sentence_bert_config.json, under any of its family names; refuses what would change vectors unseen."""
    path = next((folder / name for name in _TRANSFORMER_CONFIGS if (folder / name).is_file()), None)
    if path is None:
        return {}
    settings = read_json(path)
    text = settings.get("modality_config", {}).get("text", {})
    unusual = [
        settings.get("transformer_task", "feature-extraction") != "feature-extraction",
        text.get("method", "forward") != "forward",
        text.get("method_output_name", "last_hidden_state") != "last_hidden_state",
        bool(settings.get("config_args") or settings.get("config_kwargs")),
        bool(settings.get("processing_kwargs")),
        bool(settings.get("query_expansion")),
        settings.get("query_length") is not None,
        settings.get("document_length") is not None,
    ]
    if any(unusual):
        raise UnsupportedModel(
            f"{path} asks for more than one forward pass over plain text (a task, overrides or query "
            "expansion), which embedctl does not do: use another model."
        )
    return settings


def _hidden_size(stack: ModuleStack, config: Mapping[str, Any]) -> int:
    declared = next(
        (config[key] for key in ("hidden_size", "dim", "d_model", "n_embd") if key in config), None
    )
    size = stack.hidden_size or declared
    if not isinstance(size, int) or size < 1:
        raise ModelFilesError(f"{stack.folder / 'config.json'} has no hidden_size: the folder is no encoder.")
    if stack.hidden_size and declared and stack.hidden_size != declared:
        raise ModelFilesError(
            f"{stack.folder / 'config.json'} says hidden_size {declared}, but the pooling's config.json "
            f"expects {stack.hidden_size}: the files belong to two models, fetch the model again."
        )
    return size


def _usage(folder: Path) -> tuple[str, str, str, int | None]:
    """Query prompt, document prompt, metric and truncate_dim of config_sentence_transformers.json."""
    path = folder / "config_sentence_transformers.json"
    usage = read_optional_json(path)
    name = usage.get("similarity_fn_name")
    if name not in _METRICS:
        raise UnsupportedModel(
            f"{path} compares by {name!r}, and embedctl by cosine or dot only: use another model."
        )
    truncate_dim = usage.get("truncate_dim")
    if truncate_dim is not None and (not isinstance(truncate_dim, int) or truncate_dim < 1):
        raise ModelFilesError(f"{path} has truncate_dim {truncate_dim!r}, no positive number: correct it.")
    return *_prompts(path, usage), _METRICS[name], truncate_dim


def _prompts(path: Path, usage: Mapping[str, Any]) -> tuple[str, str]:
    """The first prompt that is not empty of each side's names, then the default one.

    A default prompt named "query" is never put before documents.
    """
    prompts = {name: prompt for name, prompt in (usage.get("prompts") or {}).items() if prompt}
    default = usage.get("default_prompt_name")
    if default is not None and default not in (usage.get("prompts") or {}):
        raise ModelFilesError(
            f"{path} names the default prompt {default!r}, which its prompts do not have: add it."
        )
    document_names = ("document", "passage", "corpus", *([default] if default != "query" else []))
    query = next((prompts[name] for name in ("query", default) if name in prompts), "")
    return query, next((prompts[name] for name in document_names if name in prompts), "")
