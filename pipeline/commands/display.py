"""What people see: progress, summaries and tables. Progress and notes go to stderr, results to stdout."""

import contextlib
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from embedctl.pipeline.ledger.failures import Failure
from embedctl.pipeline.report import Progress, RunReport
from embedctl.pipeline.search import SearchResult, snippet
from embedctl.pipeline.status import Status

if TYPE_CHECKING:
    from rich.console import Console

#: Columns before the text of a hit, and lines of it at most.
INDENT = 5
SNIPPET_LINES = 3
#: Width of tables where nobody looks at them on a terminal: nothing is cut.
PIPE_WIDTH = 200
#: Seconds between two progress lines where there is no terminal.
LINE_EVERY_S = 10.0


def note(text: str) -> None:
    """A line for people, on stderr; a stderr that cannot be written to is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text without characters that would steer a terminal or break a line."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class ShowProgress(Protocol):
    """Called with each new state of a run."""

    def __call__(self, progress: Progress) -> None: ...


@contextmanager
def progress_display() -> Iterator[ShowProgress]:
    """A live line on a terminal, a plain line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def line(progress: Progress) -> Text:
        return Text(f"  {progress_line(progress)}", no_wrap=True, overflow="ellipsis")

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(line(progress), refresh=True)


class PlainProgress:
    """One line every ten seconds."""

    def __init__(self) -> None:
        self._next_at = time.monotonic() + LINE_EVERY_S

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LINE_EVERY_S
            note(progress_line(progress))


def progress_line(progress: Progress) -> str:
    parts = [
        f"{progress.run.source} -> {progress.index} {progress.model}",
        f"{progress.run.seen:,} documents {'read so far' if progress.is_reading else 'read'}",
    ]
    if progress.num_chunks:
        parts += [f"{progress.num_chunks:,} chunks", f"{progress.tokens_per_s:,.0f} tokens/s"]
    elif progress.backlog_tokens:
        parts.append("loading the model")
    if progress.backlog_tokens:
        parts.append(f"{progress.backlog_tokens:,} tokens queued")
    if progress.eta_s is not None and progress.backlog_tokens:
        more = " and what is still to be read" if progress.is_reading else ""
        parts.append(f"{duration(progress.eta_s)} left{more}")
    return " | ".join(parts)


def duration(seconds: float) -> str:
    """3 s, 4 min 05 s, 2 h 10 min."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def show_report(report: RunReport, notes: Sequence[str]) -> None:
    """The run's summary, with every count that is not zero, the reader's notes, and what to do about what
    went wrong."""
    run, planned = report.run, report.planned
    note(
        f"Indexed {run.source} into {report.index} ({report.model}) in {duration(run.busy_s)}, run {run.id}."
    )
    documents = [
        (planned.embedded, "embedded"),
        (planned.payload_only, "with new metadata only"),
        (run.unchanged, "unchanged"),
        (planned.empty, "empty"),
        (run.duplicates, "with an id that occurred before"),
        (report.num_failed, "failed"),
        (run.pruned, "removed"),
    ]
    note(f"  documents: {run.seen:,} seen{_listed(documents)}")
    chunks = [
        (run.chunks_embedded, "embedded"),
        (run.chunks_reused, "reused"),
        (run.chunks_deleted, "deleted"),
        (run.chunks_truncated, "cut at the model's limit"),
    ]
    if any(number for number, _ in chunks):
        note(f"  chunks:    {_listed(chunks).removeprefix(': ')}")
    if run.tokens and run.busy_s > 0:
        note(f"  tokens:    {run.tokens:,} ({run.tokens / run.busy_s:,.0f}/s)")
    for line in notes:
        note(f"  {line}")
    for line in advice(report):
        note(line)


def advice(report: RunReport) -> Iterator[str]:
    """What the user should know or do, one line each."""
    run = report.run
    if report.num_failed:
        what = "1 document" if report.num_failed == 1 else f"{report.num_failed:,} documents"
        yield f"{what} failed; see `embedctl failed ls`. The next `embedctl index` tries again."
    if run.not_pruned:
        yield (
            f"{run.not_pruned:,} documents are gone from source {run.source!r}, more than may go at once, "
            "so they stay searchable. "
            "If that is right, run again with `--max-prune 1`."
        )
    if run.store_surplus:
        yield (
            f"The store holds {abs(run.store_surplus):,} points "
            f"{'more' if run.store_surplus > 0 else 'fewer'} for source "
            f"{run.source!r} than the ledger counts: one of them was changed or restored from outside. "
            "Restore both from one backup, or delete the `.embedctl` folder and index again."
        )


def _listed(counts: Sequence[tuple[int, str]]) -> str:
    text = ", ".join(f"{number:,} {what}" for number, what in counts if number)
    return f": {text}" if text else ""


def show_hits(result: SearchResult, query: str) -> None:
    """Hits as numbered blocks on stdout: document, span, and the text around the hit."""
    console = stdout_console()
    if not result.hits:
        console.print(f"Nothing found in {result.collection.name}.")
    width = max(40, min(console.width, 110) - INDENT)
    for number, hit in enumerate(result.hits, 1):
        place = f"{printable(f'{hit.source}/{hit.doc_id}')} [{hit.start}:{hit.end}]"
        console.print(f"{number:2}. {hit.score:.3f}  {place}", style="bold", soft_wrap=True)
        shown = printable(snippet(hit.text, query, SNIPPET_LINES * width - 2 * INDENT))
        for line in textwrap.wrap(shown, width):
            console.print(" " * INDENT + line, soft_wrap=True)


def show_status(status: Status) -> None:
    console = stdout_console()
    if not status.collections:
        console.print("Nothing is indexed here yet. Begin with `embedctl index PATH`.")
        return
    from rich.table import Table

    table = Table(
        "index", "model", "state", "documents", "chunks", "failures", "sources", box=None, pad_edge=False
    )
    for row in status.collections:
        totals = row.totals
        table.add_row(
            row.collection.index,
            row.collection.version,
            row.collection.state,
            f"{totals.documents:,}",
            f"{totals.chunks:,}",
            f"{totals.failures:,}",
            ", ".join(totals.sources),
        )
    console.print(table)
    for run in status.runs:
        backlog = f", {run.backlog_tokens:,} tokens queued" if run.backlog_tokens else ""
        console.print(
            f"run {run.run.id}: {run.run.source} -> {run.run.collection}: {run.activity}{backlog}; "
            f"{run.run.seen:,} documents seen, {run.run.chunks_embedded:,} chunks embedded, "
            f"{run.run.chunks_reused:,} reused",
            soft_wrap=True,
        )


def show_failures(failures: Sequence[Failure]) -> None:
    console = stdout_console()
    if not failures:
        console.print("No failures.")
    for failure in failures:
        chunk = f" chunk {failure.ordinal}" if failure.ordinal >= 0 else ""
        times = "once" if failure.attempts == 1 else f"{failure.attempts} times"
        console.print(
            f"{failure.id}  {failure.source}/{failure.doc_id}{chunk}  ({failure.stage}, tried {times})  "
            f"{failure.reason}",
            soft_wrap=True,
        )


def stdout_console() -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    # user text may look like markup or emoji codes; it is printed as it is
    return Console(markup=False, highlight=False, emoji=False, width=width)


def clear_screen() -> None:
    """Begin anew at the top of a terminal; elsewhere leave what was printed."""
    if sys.stdout.isatty():
        stdout_console().clear()
