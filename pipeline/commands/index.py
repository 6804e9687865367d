"""`embedctl index`: which sources, into which collections, one run after the other."""

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embedctl.pipeline.commands.display import progress_display, show_report
from embedctl.pipeline.commands.signals import stop_on_signals
from embedctl.pipeline.errors import UsageError
from embedctl.pipeline.indexing import Stopped, Target, index_source
from embedctl.pipeline.labels import checked_index, checked_path, checked_source
from embedctl.pipeline.readers import CountingSource, ReaderOptions, open_source
from embedctl.pipeline.report import RunReport
from embedctl.pipeline.session import Session
from embedctl.pipeline.version import open_version


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What was asked for on the command line; None where nothing was."""

    sources: Sequence[Path]
    model: str | None
    index: str | None
    label: str | None
    rebind: bool
    include: Sequence[str]
    exclude: Sequence[str]
    use_gitignore: bool
    max_prune: float | None


def index_sources(session: Session, options: IndexOptions, *, show: bool = True) -> list[RunReport]:
    """Index every source into every collection it belongs to. One report per run, in order.

    Raises the first error; what was finished before stays, what was begun is resumed by the same command.
    """
    index = checked_index(options.index or session.settings.index)
    sources = [(path, _label(path, options)) for path in _paths(options)]
    # opened before anything is written: a path that cannot be read leaves no trace
    opened = [(label, path, _open(session, options, path)) for path, label in sources]
    targets = [_target(session, index, label) for label in _version_labels(session, options, index)]
    for label, path, _ in opened:
        session.ledger.sources.bind(index, label, path, rebind=options.rebind)
    reports: list[RunReport] = []
    _calm_the_collector()
    with stop_on_signals() as stop:
        for label, _, source in opened:
            for target in targets:
                reports.append(_run(session, options, label, source, target, stop))
                if show:
                    show_report(reports[-1], source.tally.sentences())
    return reports


def _calm_the_collector() -> None:
    """Look for cyclic garbage less often: a run makes millions of small objects and no cycles of them.

    With Python's own thresholds a fifth of a run's time went there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _run(
    session: Session,
    options: IndexOptions,
    label: str,
    source: CountingSource,
    target: Target,
    stop: threading.Event,
) -> RunReport:
    max_prune = session.settings.max_prune if options.max_prune is None else options.max_prune
    with progress_display() as on_progress:
        try:
            return index_source(
                session, target, label, source, max_prune=max_prune, stop=stop, on_progress=on_progress
            )
        except Stopped:
            raise Stopped(
                f"Stopped while indexing {label!r}. The same command goes on where it stopped."
            ) from None
        finally:
            target.version.close()


def _paths(options: IndexOptions) -> list[Path]:
    paths = [path.expanduser().resolve() for path in options.sources]
    for path in paths:
        checked_path(path)
    if options.label is not None and len(paths) > 1:
        raise UsageError("--source names one source; index several sources one by one.")
    return list(dict.fromkeys(paths))


def _label(path: Path, options: IndexOptions) -> str:
    return checked_source(path.name if options.label is None else options.label)


def _open(session: Session, options: IndexOptions, path: Path) -> CountingSource:
    settings = session.settings
    return open_source(
        path,
        ReaderOptions(
            include=tuple(options.include),
            exclude=tuple(options.exclude),
            use_gitignore=options.use_gitignore,
            encoding=settings.encoding,
            max_document_bytes=settings.max_document_bytes,
            parse_timeout_s=settings.parse_timeout_s,
        ),
    )


def _version_labels(session: Session, options: IndexOptions, index: str) -> list[str]:
    """The version asked for; else all that are live or being built; else the one a new index begins with."""
    if options.model is not None:
        return [options.model]
    found = [row.version for row in session.ledger.collections.list(index) if row.state != "retired"]
    return found or [session.settings.model]


def _target(session: Session, index: str, label: str) -> Target:
    version = open_version(session, label)
    row = session.ledger.collections.ensure(index, label)
    return Target(session.catalog.describe(row), version)
