"""What is installed is what the repository holds, at versions that were tested."""

import re
import tomllib
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
NOT_SHIPPED = {"tests", "build", "benchmarks", "docs", "dist"}


def package_folders() -> list[Path]:
    """Folders of the repository that are packages, relative to its root."""
    shipped = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    found = [init for path in shipped if path.name not in NOT_SHIPPED for init in path.rglob("__init__.py")]
    return sorted(init.parent.relative_to(ROOT) for init in found)


def requirements() -> list[Requirement]:
    """Direct dependencies, those of the extras too."""
    project = PROJECT["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    return [requirement for line in lines if (requirement := Requirement(line)).name != "embedctl"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pinned}


def test_every_folder_with_an_init_is_in_the_tables_of_packages():
    names = {"embedctl": "."} | {
        ".".join(("embedctl", *folder.parts)): folder.as_posix() for folder in package_folders()
    }

    assert set(SETUPTOOLS["packages"]) == set(names)
    assert SETUPTOOLS["package-dir"] == names


def test_every_folder_with_modules_has_an_init():
    folders = {path.parent for folder in package_folders() for path in (ROOT / folder).rglob("*.py")}

    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_every_direct_dependency_is_pinned_within_its_range(requirement: Requirement):
    version = pins()[canonicalize_name(requirement.name)]

    assert requirement.specifier.contains(version)


def test_a_pin_is_one_exact_public_version():
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    pin = re.compile(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.]+")
    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_no_file_of_the_installation_names_a_place_to_download_from():
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text()

        assert not re.search(r"index-url|find-links|trusted-host|://", text), name


def test_the_command_is_the_one_function_of_cli():
    (script,) = [script for script in entry_points(group="console_scripts") if script.name == "embedctl"]

    assert callable(script.load())
