"""The command line: one thin function per command."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from embedctl.pipeline.session import Session
    from embedctl.pipeline.settings import Settings


class _StderrLog(logging.Handler):
    """Log lines on whatever stderr is now: a live progress line takes its place while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


class Commands(TyperGroup):
    """Turns errors into one clear line and an exit code; a traceback only with `-v`."""

    def invoke(self, ctx: Any) -> Any:
        from embedctl.engine.errors import EngineError
        from embedctl.pipeline.errors import EmbedctlError

        try:
            return super().invoke(ctx)
        except (EmbedctlError, EngineError) as exc:
            _fail(exc, str(exc), getattr(exc, "exit_code", 1))
        except KeyboardInterrupt as exc:
            _fail(exc, "Interrupted.", 130)
        except BrokenPipeError:
            raise
        except OSError as exc:
            _fail(exc, f"{exc.strerror or exc}{f': {exc.filename}' if exc.filename else ''}.", 1)


def _fail(exc: BaseException, message: str, code: int) -> NoReturn:
    from embedctl.pipeline.commands.display import note

    if logging.getLogger("embedctl").isEnabledFor(logging.DEBUG):
        raise exc
    note(f"embedctl: {message}")
    raise typer.Exit(code) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Turn documents into a search index, keep it current, search it. Begin with `embedctl index PATH`.",
)
models_app = typer.Typer(no_args_is_help=True, help="Versions: labels bound to one model and one chunking.")
failed_app = typer.Typer(no_args_is_help=True, help="Documents and chunks that could not be indexed.")
app.add_typer(models_app, name="models")
app.add_typer(failed_app, name="failed")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Index = Annotated[str | None, typer.Option("--index", help="The index; `docs` unless configured otherwise.")]


@app.callback()
def configure(
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Log details, and tracebacks of errors.")
    ] = False,
) -> None:
    root = logging.getLogger()
    root.handlers = [_StderrLog()]
    root.setLevel(logging.WARNING)
    logging.getLogger("embedctl").setLevel(logging.DEBUG if verbose else logging.WARNING)


@app.command()
def index(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help="Folders, files, or .jsonl / .jsonl.gz records.")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="Version to index at; without it, all that the index has, or `v1` for a new one."),
    ] = None,
    index: Index = None,
    source: Annotated[
        str | None, typer.Option(help="Label of the source; the last part of its path unless given.")
    ] = None,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="The labelled source has moved to this path.")
    ] = False,
    include: Annotated[
        list[str] | None, typer.Option(help="Read only files that match, as in .gitignore. May be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out files that match. May be repeated.")
    ] = None,
    no_ignore: Annotated[
        bool, typer.Option("--no-ignore", help="Read what .gitignore files exclude, too.")
    ] = False,
    max_prune: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of a source's documents that may vanish in one run; 0.2 unless configured otherwise.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Index documents: embed what is new or changed, remove what is gone. Safe to stop and to run again."""
    from embedctl.pipeline.commands.index import IndexOptions, index_sources

    options = IndexOptions(
        sources=tuple(sources),
        model=model,
        index=index,
        label=source,
        rebind=rebind,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        use_gitignore=not no_ignore,
        max_prune=max_prune,
    )
    with _session() as session:
        reports = index_sources(session, options, show=not json)
        if json:
            _print_json({"runs": [report.to_json() for report in reports]})
    from embedctl.pipeline.report import worst_exit_code

    raise typer.Exit(worst_exit_code(reports))


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="How many hits.")] = 10,
    model: Annotated[str | None, typer.Option(help="Version to search; the live one unless given.")] = None,
    index: Index = None,
    by_chunk: Annotated[bool, typer.Option("--by-chunk", help="Do not group hits by document.")] = False,
    json: Json = False,
) -> None:
    """Search the live index: the query is embedded by the very model that embedded the documents."""
    from embedctl.pipeline.commands.display import show_hits
    from embedctl.pipeline.commands.search import search_index

    with _session() as session:
        result = search_index(session, text, k, index=index, model=model, by_chunk=by_chunk)
    if json:
        _print_json(result.to_json())
    else:
        show_hits(result, text)


@app.command()
def status(
    run: Annotated[int | None, typer.Argument(help="Number of one run.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Show the indexes and what their runs are doing."""
    from embedctl.pipeline.commands.status import show_current_status

    with _session() as session:
        show_current_status(session, run, watch=watch, as_json=json)


@failed_app.command("ls")
def failed_ls(index: Index = None, json: Json = False) -> None:
    """List what failed, with the reason. The next `embedctl index` tries it again."""
    from embedctl.pipeline.commands.display import show_failures

    with _session() as session:
        if index is not None:
            session.ledger.collections.require_index(index)
        failures = session.ledger.failures.list(index)
    if json:
        keys = ("id", "source", "doc_id", "stage", "reason", "attempts")
        _print_json({"failures": [{key: getattr(failure, key) for key in keys} for failure in failures]})
    else:
        show_failures(failures)


@models_app.command("ls")
def models_ls(json: Json = False) -> None:
    """List the versions that are defined here."""
    from embedctl.pipeline.commands.models import list_models

    with _session() as session:
        _print(list_models(session), json)


@models_app.command("add")
def models_add(
    label: Annotated[str, typer.Argument(help="Label of the new version, such as v2.")],
    ref: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder, a hub id with --revision, or pkg:PACKAGE/FOLDER of an installed package.",
        ),
    ],
    revision: Annotated[str | None, typer.Option(help="Commit of a hub model, 40 hex digits.")] = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Truncate vectors to so many dimensions.")
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="For a model whose files do not say: "
            "mean, cls, max, lasttoken, weightedmean or mean_sqrt_len_tokens."
        ),
    ] = None,
    chunking: Annotated[str, typer.Option(help="tokens, or none to keep documents whole.")] = "tokens",
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of text per chunk; as many as the model reads, at most 510, unless given."
        ),
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(min=0, help="Tokens that neighbouring chunks share; 32 unless given.")
    ] = None,
    json: Json = False,
) -> None:
    """Define a version: a label bound for ever to one model, precision and chunking."""
    from embedctl.pipeline.commands.models import ModelOptions, add_model

    options = ModelOptions(
        label, ref, revision, precision, dimensions, pooling, chunking, chunk_tokens, overlap
    )
    with _session() as session:
        _print(add_model(session, options), json)


@models_app.command("show")
def models_show(
    label: Annotated[str, typer.Argument(help="Label of the version, such as v1.")], json: Json = False
) -> None:
    """Show what a version is bound to: its space, its chunking, and where its model comes from."""
    from embedctl.pipeline.commands.models import show_model

    with _session() as session:
        _print(show_model(session, label), json)


def main() -> None:
    app()


def _session() -> "Session":
    from embedctl.pipeline.session import Session

    return Session(_settings())


def _settings() -> "Settings":
    from embedctl.pipeline.settings import load_settings

    return load_settings()


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        _print_json(result.to_json())
    else:
        result.show()


def _print_json(value: Any) -> None:
    import orjson

    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()
