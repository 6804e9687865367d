"""Write what follows from the code: cli.md from the commands, settings.md from Settings.

python docs/generate.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from pydantic.fields import FieldInfo

from embedctl.cli import app
from embedctl.pipeline.settings import CONFIG_NAME, ENV_PREFIX, Settings

DOCS = Path(__file__).resolve().parent
MADE = "<!-- made by docs/generate.py: do not edit -->"

CLI_INTRO = """\
Every command takes `--help`. `-v` comes before the command, as in `embedctl -v index PATH`. What the
commands do together is in the [guide](guide.md).
"""
SETTINGS_INTRO = f"""\
Nothing has to be set. Each setting is a key of `{CONFIG_NAME}` or an environment variable, which wins. The
file is looked for in the working directory and then in the folders above it. A relative path in the file
counts from the file's folder, in the environment from the working directory. A value that is not allowed
ends the command with one line that says which one, where it was set and what is allowed. Passwords and tokens
are never shown.
"""


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name: ("embedctl models add", ...)."""
    for part, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, command


def cli_page() -> str:
    root = typer.main.get_command(app)
    sections = [_section(name, command) for name, command in commands(root, "embedctl")]
    general = _table([option for option in root.params if option.param_type_name == "option"])
    return "\n".join([MADE, "", "# Commands", "", CLI_INTRO, general, *sections])


def settings_page() -> str:
    rows = [_setting(name, field) for name, field in Settings.model_fields.items()]
    head = ["| key | variable | default | allowed | what it is |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([MADE, "", "# Settings", "", SETTINGS_INTRO, *head, *rows, ""])


def _section(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_argument_name, arguments)])
    return "\n".join([f"## {name}", "", f"`{usage}`", "", command.help, "", _table([*arguments, *options])])


def _table(params: list[Any]) -> str:
    rows = [f"| {_name(param)} | {_cell(_help(param))} |" for param in params]
    return "\n".join(["| | |", "| --- | --- |", *rows, ""])


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{_argument_name(param)}`"
    return ", ".join(f"`{name}`" for name in param.opts)


def _argument_name(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _help(param: Any) -> str:
    """The help text, with the default where it says something."""
    default = param.default
    shown = "" if default is None or isinstance(default, bool) else f" Default: {default}."
    return f"{param.help or ''}{shown}"


def _setting(name: str, field: FieldInfo) -> str:
    extra = field.json_schema_extra
    allowed = extra["allowed"] if isinstance(extra, dict) else ""
    cells = [
        f"`{name}`",
        f"`{ENV_PREFIX}{name.upper()}`",
        _default(field),
        str(allowed),
        field.description or "",
    ]
    return f"| {' | '.join(map(_cell, cells))} |"


def _default(field: FieldInfo) -> str:
    """Of what is derived from other settings the description says how."""
    if field.is_required() or field.default_factory is not None or field.default is None:
        return ""
    return f"{int(field.default):,}" if isinstance(field.default, int) else str(field.default)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"cli.md": cli_page, "settings.md": settings_page}


if __name__ == "__main__":
    for page, content in PAGES.items():
        (DOCS / page).write_text(content(), encoding="utf-8")
