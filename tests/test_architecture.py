"""Which part may know which, read from the sources: an arrow the wrong way fails before it is ever used."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("engine", "pipeline", "workers", "online", "migrations")

#: What each part may import of embedctl. The command line may import everything.
ALLOWED = {
    "embedctl": ("embedctl",),
    "embedctl.engine": ("embedctl.engine",),
    "embedctl.pipeline": ("embedctl", "embedctl.engine", "embedctl.pipeline"),
    "embedctl.migrations": ("embedctl.migrations", "embedctl.pipeline"),
    "embedctl.workers": ("embedctl", "embedctl.engine", "embedctl.pipeline", "embedctl.workers"),
    "embedctl.online": ("embedctl", "embedctl.engine", "embedctl.pipeline", "embedctl.online"),
}

#: Readers yield documents and stores keep points; how far a run has got is none of their business.
STRANGERS = [
    ("embedctl.pipeline.readers", "embedctl.pipeline.ledger"),
    ("embedctl.pipeline.stores", "embedctl.pipeline.ledger"),
    ("embedctl.pipeline.readers", "embedctl.pipeline.stores"),
    ("embedctl.pipeline.stores", "embedctl.pipeline.readers"),
]

#: Slow to import and not needed by most commands.
HEAVY = ("torch", "transformers", "pyarrow", "sentence_transformers")
#: Modules that load only when a model or a batch is really used, and may import them at their top.
LATE = ("embedctl.engine", "embedctl.pipeline.payload")
#: What every command loads, or a process that never has a model: none of it may reach a heavy import.
LIGHT = (
    "embedctl.cli",
    "embedctl.engine.errors",
    "embedctl.pipeline.errors",
    "embedctl.pipeline.settings",
    "embedctl.pipeline.document",
    "embedctl.pipeline.ledger",
    "embedctl.pipeline.readers",
    "embedctl.pipeline.stores",
    "embedctl.migrations",
)


@dataclass(frozen=True)
class Module:
    """A source file. imports: everything it names; eager: what is loaded with it."""

    name: str
    path: Path
    tree: ast.Module
    imports: frozenset[str]
    eager: frozenset[str]


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("embedctl", *(part for part in parts if part != "__init__")))


def sources() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.py"))
    for part in PARTS:
        yield from sorted((ROOT / part).rglob("*.py"))


NAMES = {module_name(path) for path in sources()}


def imported(node: ast.AST, package: str) -> Iterator[str]:
    """Modules that an import statement names, relative ones resolved; empty for any other node."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield module
        # `from embedctl.pipeline import cache` names a module, `from embedctl.engine import Engine` does not
        yield from (full for alias in node.names if (full := f"{module}.{alias.name}") in NAMES)


def eager_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: not those of functions nor of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from eager_nodes(child)


def parse(path: Path) -> Module:
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = frozenset(found for node in ast.walk(tree) for found in imported(node, package))
    eager = frozenset(found for node in eager_nodes(tree) for found in imported(node, package))
    return Module(name, path, tree, imports, eager)


MODULES = {module.name: module for module in map(parse, sources())}


def part_of(name: str) -> str:
    """`embedctl.engine.pooling` -> `embedctl.engine`; what lies in the root is `embedctl`."""
    words = name.split(".")
    return ".".join(words[:2]) if len(words) > 1 and words[1] in PARTS else "embedctl"


def may_import(module: str, name: str) -> bool:
    return module == "embedctl.cli" or (name != "embedctl.cli" and part_of(name) in ALLOWED[part_of(module)])


def test_imports_point_inwards_only():
    wrong = [
        f"{module.name} imports {name}"
        for module in MODULES.values()
        for name in sorted(module.imports)
        if is_within(name, "embedctl") and not may_import(module.name, name)
    ]

    assert wrong == []


@pytest.mark.parametrize(("part", "stranger"), STRANGERS)
def test_strangers_do_not_import_each_other(part: str, stranger: str):
    ours = [module for module in MODULES.values() if is_within(module.name, part)]

    assert [m.name for m in ours if any(is_within(name, stranger) for name in m.imports)] == []


def test_everything_is_imported_through_embedctl():
    # `import engine` would load a module a second time when the root is on the path
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (*sources(), *sorted((ROOT / "tests").rglob("*.py")))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if not (isinstance(node, ast.ImportFrom) and node.level)
        for name in imported(node, "")
        if name.split(".")[0] in (*PARTS, "cli")
    ]

    assert wrong == []


def test_heavy_libraries_are_imported_late():
    wrong = [
        f"{module.name} imports {name} when it is loaded"
        for module in MODULES.values()
        for name in sorted(module.eager)
        if name.split(".")[0] in HEAVY and not any(is_within(module.name, late) for late in LATE)
    ]

    assert wrong == []


def heavy_path(module: Module, seen: set[str]) -> list[str]:
    """The chain of imports from the module to a heavy library, empty when there is none."""
    seen.add(module.name)
    if heavy := [name for name in module.eager if name.split(".")[0] in HEAVY]:
        return [module.name, heavy[0]]
    parents = {module.name.rsplit(".", i)[0] for i in range(1, module.name.count(".") + 1)}
    for name in sorted((module.eager | parents) & MODULES.keys() - seen):
        if path := heavy_path(MODULES[name], seen):
            return [module.name, *path]
    return []


def test_what_every_command_loads_stays_light():
    light = [module for module in MODULES.values() if any(is_within(module.name, name) for name in LIGHT)]

    paths = [" -> ".join(heavy_path(module, set())) for module in light]

    assert [path for path in paths if path] == []


def test_the_command_line_starts_without_what_only_some_commands_need():
    code = "import sys, embedctl.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {*HEAVY, "pydantic", "sqlalchemy", "qdrant_edge", "numpy"} & set(run.stdout.split()) == set()


def test_every_module_says_what_it_is():
    assert [module.name for module in MODULES.values() if not ast.get_docstring(module.tree)] == []


def test_the_root_holds_no_other_modules():
    # each one would be swept into the wheel
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "cli.py"]
