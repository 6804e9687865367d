"""Finding and reading a model's files: JSON with a size cap, safetensors, the tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedctl.engine.errors import ModelFilesError

#: Largest JSON file that is read, in bytes; the biggest shard indexes are a few hundred kilobytes.
MAX_JSON_BYTES = 16 * 2**20
#: Largest tokenizer.json, in bytes; vocabularies of 256,000 pieces take about 35 MB.
MAX_TOKENIZER_BYTES = 256 * 2**20

_LFS_POINTER = b"version https://git-lfs"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Raises ModelFilesError when it is missing, too large or no object."""
    value = _load_json(path)
    if not isinstance(value, dict):
        raise ModelFilesError(f"{path} holds no JSON object: fetch the model again.")
    return value


def read_json_list(path: Path) -> list[Mapping[str, Any]]:
    """The JSON list of objects in the file; raises as read_json does."""
    value = _load_json(path)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ModelFilesError(f"{path} holds no JSON list of objects: fetch the model again.")
    return value


def read_optional_json(path: Path) -> dict[str, Any]:
    """As read_json, and empty when the file does not exist."""
    return read_json(path) if path.is_file() else {}


def find_weight_files(folder: Path) -> tuple[Path, ...]:
    """model.safetensors, or the shards that model.safetensors.index.json names, in name order."""
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if single.is_file():
        return (_require_weights(single),)
    if index.is_file():
        return tuple(_require_weights(folder / name) for name in _shard_names(index))
    if any(folder.glob("*.bin")):
        raise ModelFilesError(
            f"{folder} has its weights as .bin only, which can carry code: convert them to model.safetensors "
            "(AutoModel.from_pretrained(...).save_pretrained(...)) or take a revision that has it."
        )
    raise ModelFilesError(f"{folder} has no model.safetensors: fetch the model again, with its weights.")


def require_tokenizer_file(folder: Path) -> Path:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFilesError(
            f"{folder} has no tokenizer.json: "
            "make it with AutoTokenizer.from_pretrained(...).save_pretrained(...)."
        )
    _check_size(path, MAX_TOKENIZER_BYTES)
    return path


def _shard_names(index: Path) -> list[str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFilesError(f"{index} has no weight_map: fetch the model again.")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelFilesError(
                f"{index} names {name!r}, which is no safetensors file beside it: do not use this model."
            )
    return names


def _require_weights(path: Path) -> Path:
    if not path.is_file():
        raise ModelFilesError(f"{path} is missing: fetch the model again, with all its weight files.")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise ModelFilesError(
                f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in its folder."
            )
    return path


def _load_json(path: Path) -> Any:
    if not path.is_file():
        raise ModelFilesError(f"{path} is missing: name the folder of a complete model.")
    _check_size(path, MAX_JSON_BYTES)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as exc:
        raise ModelFilesError(f"{path} cannot be read as JSON ({exc}): fetch the model again.") from exc


def _check_size(path: Path, limit_bytes: int) -> None:
    size = path.stat().st_size
    if size > limit_bytes:
        raise ModelFilesError(
            f"{path} has {size} bytes, more than the {limit_bytes} that such a file may have."
        )
