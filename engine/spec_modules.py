"""modules.json of sentence-transformers: which modules follow the transformer, and how they are set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from embedctl.engine.errors import ModelFilesError, UnsupportedModel
from embedctl.engine.spec_files import find_weight_files, read_json, read_json_list

POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")

#: Switches of the older pooling format; several that are on are concatenated in this order.
_POOLING_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

#: Last component of the dotted path that a Dense module's config names. Only these ever run.
_ACTIVATIONS = {
    "Identity": "identity",
    "Tanh": "tanh",
    "GELU": "gelu",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
}


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """One sentence-transformers Dense module: activation(x @ weight.T + bias).

    weights: safetensors file with linear.weight (out, in) and, where has_bias, linear.bias (out,).
    activation: "identity", "tanh", "gelu", "relu", "sigmoid", "silu" or "leaky_relu", with torch's defaults.
    """

    weights: Path
    in_features: int
    out_features: int
    has_bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class ModuleStack:
    """The modules in order: a transformer in `folder`, pooling, any dense layers, unit length at the end.

    hidden_size: length of a token state that the pooling expects; None when it does not say.
    """

    folder: Path
    pooling: tuple[str, ...]
    include_prompt: bool
    dense: tuple[DenseSpec, ...]
    normalize: bool
    hidden_size: int | None = None

    def embedding_dim(self, hidden_size: int) -> int:
        """Length of a vector. Raises ModelFilesError where a module's output is not the next one's input."""
        dim = hidden_size * len(self.pooling)
        for dense in self.dense:
            if dense.in_features != dim:
                raise ModelFilesError(
                    f"{dense.weights.parent / 'config.json'} takes {dense.in_features} features, "
                    f"but the modules before it give {dim}: fetch the model again."
                )
            dim = dense.out_features
        return dim


def read_modules(folder: Path, *, pooling: tuple[str, ...] | None = None) -> ModuleStack:
    """Read modules.json and the configs it names; an explicit pooling replaces the one in the files.

    Raises UnsupportedModel for a module, pooling or activation that is not known, or an unusual order.
    """
    path = folder / "modules.json"
    modules = [
        (_module_name(path, item), _module_folder(path, folder, item)) for item in read_json_list(path)
    ]
    names = [name for name, _ in modules if name != "Dropout"]  # a no-op outside training
    if names[:1] != ["Transformer"] or names[1:2] != ["Pooling"] or names != _usual_order(names):
        raise UnsupportedModel(
            f"{path} has the modules {', '.join(names) or 'none'}; embedctl reads Transformer, Pooling, "
            "any number of Dense, and Normalize, in this order."
        )
    stack = _read_pooling(next(at for name, at in modules if name == "Pooling"), pooling)
    return replace(
        stack,
        folder=next(at for name, at in modules if name == "Transformer"),
        dense=tuple(_read_dense(at) for name, at in modules if name == "Dense"),
        normalize="Normalize" in names,
    )


def pooling_modes(modes: Iterable[str], source: str) -> tuple[str, ...]:
    """The modes, checked. source: where they come from, for the error."""
    found = tuple(mode.strip() for mode in modes)
    unknown = [mode for mode in found if mode not in POOLING_MODES]
    if unknown or not found:
        raise UnsupportedModel(
            f"{source} names the pooling {', '.join(map(repr, unknown)) or 'nothing'}; "
            f"known are {', '.join(POOLING_MODES)}."
        )
    return found


def _module_name(path: Path, item: Mapping[str, Any]) -> str:
    """Transformer, Pooling, ...: the last component of the path, which differs between releases."""
    kind = str(item.get("type", ""))
    name = kind.rpartition(".")[2]
    if not kind.startswith("sentence_transformers.") or name not in _KNOWN_MODULES:
        raise UnsupportedModel(
            f"{path} names the module {kind!r}; "
            f"embedctl knows {', '.join(_KNOWN_MODULES)} of sentence_transformers: use another model."
        )
    return name


_KNOWN_MODULES = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")


def _module_folder(path: Path, folder: Path, item: Mapping[str, Any]) -> Path:
    relative = Path(str(item.get("path", "")))
    if relative.is_absolute() or ".." in relative.parts:
        raise ModelFilesError(
            f"{path} names the folder {str(relative)!r} outside the model: do not use this model."
        )
    return folder / relative


def _usual_order(names: list[str]) -> list[str]:
    num_dense = names.count("Dense")
    tail = ["Normalize"] if "Normalize" in names else []
    return ["Transformer", "Pooling", *["Dense"] * num_dense, *tail]


def _read_pooling(folder: Path, explicit: tuple[str, ...] | None) -> ModuleStack:
    path = folder / "config.json"
    config = read_json(path)
    return ModuleStack(
        folder=folder,
        pooling=explicit or pooling_modes(_configured_pooling(path, config), str(path)),
        include_prompt=bool(config.get("include_prompt", True)),
        dense=(),
        normalize=False,
        hidden_size=config.get("embedding_dimension", config.get("word_embedding_dimension")),
    )


def _configured_pooling(path: Path, config: Mapping[str, Any]) -> list[str]:
    """The newer format (`pooling_mode`, a name or a list) or the older one (a switch per mode)."""
    unknown = [key for key in config if key.startswith("pooling_mode_") and key not in _POOLING_SWITCHES]
    if any(config[key] for key in unknown):
        raise UnsupportedModel(
            f"{path} switches on {', '.join(unknown)}, which embedctl does not know: use another model."
        )
    mode = config.get("pooling_mode")
    if mode is None:
        return [mode for switch, mode in _POOLING_SWITCHES.items() if config.get(switch)]
    return [mode] if isinstance(mode, str) else [str(each) for each in mode]


def _read_dense(folder: Path) -> DenseSpec:
    path = folder / "config.json"
    config = read_json(path)
    reads = {
        config.get("module_input_name") or "sentence_embedding",
        config.get("module_output_name") or "sentence_embedding",
    }
    if config.get("use_residual") or reads != {"sentence_embedding"}:
        raise UnsupportedModel(
            f"{path} sets a residual or other inputs, which embedctl does not know: use another model."
        )
    return DenseSpec(
        weights=_dense_weights(folder),
        in_features=_positive(path, config, "in_features"),
        out_features=_positive(path, config, "out_features"),
        has_bias=bool(config.get("bias", True)),
        activation=_activation(path, config.get("activation_function", "torch.nn.modules.activation.Tanh")),
    )


def _dense_weights(folder: Path) -> Path:
    files = find_weight_files(folder)
    if len(files) != 1:
        raise UnsupportedModel(
            f"{folder} has its weights in {len(files)} files: save the module as one model.safetensors."
        )
    return files[0]


def _positive(path: Path, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelFilesError(f"{path} has no positive {key}: fetch the model again.")
    return value


def _activation(path: Path, dotted: Any) -> str:
    """A name of the allow-list for a dotted path of torch; nothing is imported by name."""
    package, _, name = str(dotted).rpartition(".")
    if not package.startswith("torch.nn") or name not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{path} names the activation {dotted!r}; "
            f"embedctl runs {', '.join(_ACTIVATIONS)} of torch.nn only: use another model."
        )
    return _ACTIVATIONS[name]
