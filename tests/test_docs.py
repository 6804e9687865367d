"""The pages say what the program does: references in step, commands known, names and links that exist."""

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from embedctl.cli import app
from embedctl.pipeline.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

# run, not imported: nothing is left beside it that the demo would index
GENERATE: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate.py"))
COMMANDS = list(GENERATE["commands"](typer.main.get_command(app), "embedctl"))

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_STEP = re.compile(r"^(\d)\. (.+?)(?=^\d\. |\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$|`[^`]+`", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(r"^(?:\$ )?(embedctl [^#\n]+)", re.MULTILINE)


@pytest.mark.parametrize("page", sorted(GENERATE["PAGES"]))
def test_a_reference_page_is_what_the_code_says(page):
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")

    assert written == GENERATE["PAGES"][page](), "run: python docs/generate.py"


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_and_all_that_it_takes_has_help_and_is_in_the_docs(name, command):
    helpless = [param.name for param in command.params if not param.help]

    assert command.help
    assert helpless == []
    assert f"\n## {name}\n" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_setting_says_what_it_is_for_and_what_is_allowed():
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert isinstance(field.json_schema_extra, dict), name
        assert field.json_schema_extra["allowed"], name


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_relative_link_leads_somewhere(page):
    links = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))

    lost = [link for link in links if "://" not in link and not _leads_somewhere(page, link)]

    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_example_uses_a_command_that_exists_with_options_that_it_has(page):
    known = dict(COMMANDS)
    shown = "".join(_FENCE.findall(page.read_text(encoding="utf-8")))

    for example in _EXAMPLE.findall(shown):
        words = example.split()
        name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in known), None)
        assert name, example
        options = {option for param in known[name].params for option in param.opts}
        used = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert used <= options, example


def test_the_life_of_a_run_is_eight_steps_that_end_in_functions_that_exist():
    steps = _STEP.findall(_section("Life of a run"))

    assert [number for number, _ in steps] == list("12345678")
    for _, text in steps:
        path, _, function = text.rstrip().rpartition("`")[0].rpartition("`")[2].partition(":")
        assert function in set(_functions(ROOT / path)), text


def test_the_glossary_has_fifteen_words():
    rows = [line for line in _section("Words").splitlines() if line.startswith("| ")][1:]

    assert len([row for row in rows if not row.startswith("| ---")]) == 15


def test_the_map_names_every_package_and_only_what_exists():
    shown = set(re.findall(r"`([\w./*]+)`", _section("The map")))
    folders = {path for path in shown if path.endswith("/")}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    top_level = {f"{folder}/" for folder in packages.values() if folder != "." and "/" not in folder}

    assert top_level <= folders
    for path in shown - {"embedctl"}:
        assert any(list(ROOT.glob(f"{base}{path}")) for base in ("", "engine/", "pipeline/")), path


def test_every_decision_has_a_number_of_its_own_and_says_it_in_one_paragraph():
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))

    for number, decision in enumerate(decisions, 1):
        heading, paragraph, *more = decision.read_text(encoding="utf-8").strip().split("\n\n")
        assert decision.name.startswith(f"{number:04}-")
        assert heading.startswith(f"# {number:04}: ")
        assert paragraph
        assert more == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or anchor in set(_anchors(target))


def _anchors(page: Path) -> Iterator[str]:
    """What a heading is called in a link, as GitHub makes it."""
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _section(heading: str) -> str:
    return README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _functions(path: Path) -> Iterator[str]:
    """Names of functions, and of methods as Class.method."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef))
