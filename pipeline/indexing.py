"""One run of `index`: a reader, workers and the tick, side by side on one machine."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from embedctl.pipeline.chunking import Chunker
from embedctl.pipeline.document import Source
from embedctl.pipeline.errors import EmbedctlError, LedgerBusy, StoreUnavailable
from embedctl.pipeline.ledger.documents import Window
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.planner import Planner
from embedctl.pipeline.report import Progress, RunReport, report_run
from embedctl.pipeline.session import Session
from embedctl.pipeline.stores.base import Collection
from embedctl.pipeline.tick import Tick
from embedctl.pipeline.version import OpenVersion

if TYPE_CHECKING:
    from embedctl.pipeline.batch import Worker

logger = logging.getLogger(__name__)

#: How often the run looks for maintenance that is due, and shows its progress.
TICK_S = 0.2
#: When nothing but passing errors (store away, out of memory) came for so long, the command ends; the run can
#: be resumed.
PATIENCE_S = 120.0


class OnProgress(Protocol):
    """Shown about five times a second while a run is open."""

    def __call__(self, progress: Progress) -> None: ...


@dataclass(frozen=True)
class Target:
    """Where a run writes: an index at a version."""

    collection: Collection
    version: OpenVersion


class Stopped(EmbedctlError):
    """The run was stopped before its end; the same command goes on with it."""

    exit_code = 130


def index_source(
    session: Session,
    target: Target,
    label: str,
    source: Source,
    *,
    max_prune: float,
    stop: threading.Event,
    on_progress: OnProgress,
) -> RunReport:
    """Index a source into a collection, or go on where an earlier command was stopped or killed.

    Returns the report of the closed run. Raises Stopped when `stop` was set, RunBusy when another process has
    the run.
    """
    session.store.create_collection(target.collection)
    lease_s = session.settings.lease_s
    run, was_resumed = session.ledger.runs.open(target.collection.name, label, session.owner, lease_s)
    if was_resumed:
        logger.info(
            "Run %d goes on where it stopped", run.id, extra={"action": "run_resumed", "run_id": run.id}
        )
    running = _Running(session, target, run, source, max_prune, stop, on_progress)
    running.until_closed()
    return report_run(session.ledger, session.ledger.runs.reload(run), was_resumed=was_resumed)


class _Running:
    """The threads of one run. The caller's thread ticks; the first error of any of them stops all."""

    def __init__(
        self,
        session: Session,
        target: Target,
        run: Run,
        source: Source,
        max_prune: float,
        stop: threading.Event,
        on_progress: OnProgress,
    ) -> None:
        self._session = session
        self._target = target
        self._run = run
        self._source = source
        self._max_prune = max_prune
        self._stop = stop
        self._on_progress = on_progress
        self._ended = threading.Event()
        # set when the tick may have something to do before its time: all was read, or the queue ran dry
        self._news = threading.Event()
        self._work_ready = threading.Condition()
        self._error: BaseException | None = None
        self._made_worker: Worker | None = None
        self._patience = _Patience()
        self._rate = _Rate()
        self._tick = Tick(
            session.ledger,
            session.store,
            session.catalog,
            session.owner,
            session.settings.request_timeout_s,
        )
        self._busy_since = time.monotonic()

    def until_closed(self) -> None:
        threads = [threading.Thread(target=self._guarded, args=(self._read,), name="reader")]
        threads += [
            threading.Thread(target=self._guarded, args=(self._work,), name=f"worker-{number}")
            for number in range(self._session.settings.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._watch()
        finally:
            self._ended.set()
            with self._work_ready:
                self._work_ready.notify_all()
            for thread in threads:
                thread.join()
            if self._made_worker is not None:
                self._made_worker.cache.close()
            self._leave()

    # -- the caller's thread

    def _watch(self) -> None:
        """Tick and show progress until the run is closed, an error occurs or a stop is asked for."""
        ledger, beaten_at, patience = self._session.ledger, time.monotonic(), _Patience()
        while True:
            if self._error is not None:
                raise self._error
            if self._stop.is_set():
                raise Stopped
            try:
                if time.monotonic() - beaten_at > self._session.settings.lease_s / 4:
                    self._beat()
                    beaten_at = time.monotonic()
                self._tick()
                run = ledger.runs.get(self._run.id)
                patience.after(None)
            except (StoreUnavailable, LedgerBusy) as exc:
                patience.after(exc)
                logger.warning("%s It is tried again.", exc, extra={"action": "away"})
                run = None
            if run is not None:
                if not run.is_open:
                    return
                self._show(run)
            self._news.wait(TICK_S)
            self._news.clear()

    def _show(self, run: Run) -> None:
        collection = self._target.collection
        backlog = self._session.ledger.batches.num_tokens([run.id])
        per_s = self._rate.update(run.tokens)
        self._on_progress(Progress(collection.index, collection.version, run, backlog, per_s))

    def _beat(self) -> None:
        self._session.ledger.runs.beat(self._run, self._session.settings.lease_s, self._take_busy_s())

    def _leave(self) -> None:
        try:
            self._session.ledger.runs.leave(self._run, self._take_busy_s())
            self._session.ledger.maintenance.release(self._session.owner)
        except EmbedctlError as exc:
            logger.debug("The run's lease runs out by itself: %s", exc)

    def _take_busy_s(self) -> float:
        now = time.monotonic()
        busy_s, self._busy_since = now - self._busy_since, now
        return busy_s

    # -- reader and workers

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as exc:
            if self._error is None:
                self._error = exc
            self._ended.set()
            self._news.set()

    def _read(self) -> None:
        planner = Planner(
            self._session.ledger,
            self._run,
            self._chunker,
            batch_tokens=self._session.settings.batch_tokens,
            on_queued=self._on_queued,
            wait_for_room=self._wait_for_room,
            should_stop=self._should_stop,
        )
        if planner.plan_source(self._source):
            self._session.ledger.runs.finish_enumeration(
                self._run, self._max_prune, may_prune=planner.may_prune
            )
            self._news.set()

    def _chunker(self) -> Chunker:
        return self._target.version.chunker

    def _on_queued(self, window: Window) -> None:
        if window.batches:
            with self._work_ready:
                self._work_ready.notify_all()

    def _wait_for_room(self) -> None:
        limit = self._session.settings.ready_tokens
        while not self._should_stop() and self._session.ledger.batches.num_tokens([self._run.id]) > limit:
            self._ended.wait(TICK_S / 2)

    def _work(self) -> None:
        while not self._should_stop():
            claim = self._session.ledger.batches.claim(
                self._session.owner, self._session.settings.lease_s, [self._run.id]
            )
            if claim is None:
                with self._work_ready:
                    self._work_ready.wait(TICK_S)
                continue
            from embedctl.pipeline.batch import embed_batch  # numpy and Arrow only when there is work

            self._patience.after(embed_batch(self._worker(), claim))
            if not self._session.ledger.batches.num_tokens([self._run.id]):
                self._news.set()

    def _worker(self) -> "Worker":
        """What the threads share; made for the first batch, as an unchanged source needs none of it."""
        with self._work_ready:
            if self._made_worker is None:
                self._made_worker = self._make_worker()
            return self._made_worker

    def _make_worker(self) -> "Worker":
        from embedctl.pipeline.batch import Worker
        from embedctl.pipeline.cache import open_cache
        from embedctl.pipeline.sharing import SharedVectors

        settings, collection = self._session.settings, self._target.collection
        return Worker(
            ledger=self._session.ledger,
            run=self._run,
            collection=collection,
            store=self._session.store,
            cache=open_cache(settings.home / "cache.db", collection.space, settings.cache_bytes),
            shared=SharedVectors(),
            engine=self._target.version.engine,
            should_stop=self._should_stop,
            lease_s=settings.lease_s,
            request_timeout_s=settings.request_timeout_s,
        )

    def _should_stop(self) -> bool:
        return self._stop.is_set() or self._ended.is_set()


class _Patience:
    """Passing errors may go on for a while, if nothing at all works meanwhile; then the last one is
    raised."""

    def __init__(self) -> None:
        self._trouble_since: float | None = None

    def after(self, error: Exception | None) -> None:
        if error is None:
            self._trouble_since = None
            return
        self._trouble_since = self._trouble_since or time.monotonic()
        if time.monotonic() - self._trouble_since > PATIENCE_S:
            raise error


class _Rate:
    """Tokens per second over the last ten seconds or so."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def update(self, num_tokens: int) -> float:
        now = time.monotonic()
        self._samples = [(at, number) for at, number in self._samples if now - at < 10.0] + [
            (now, num_tokens)
        ]
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0
