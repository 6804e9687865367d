"""Observed documents become plans: skipped, adopted or cut into chunks and queued, a window at a time."""

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from embedctl.pipeline.chunking import Chunk, Chunker
from embedctl.pipeline.document import Document, Source, Unreadable
from embedctl.pipeline.errors import SourceError
from embedctl.pipeline.ledger.documents import (
    Decision,
    DocumentRow,
    NewBatch,
    Plan,
    Window,
    WindowOutdated,
    decide,
)
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.ledger.runs import Run
from embedctl.pipeline.readers.records import LINE_STAGE

logger = logging.getLogger(__name__)

#: A window is planned when it has so many documents or characters, or is so old: a first batch should not
#: wait for a big one.
WINDOW_DOCUMENTS = 512
WINDOW_CHARS = 400_000
WINDOW_S = 0.5
#: Points per batch at most, whatever their tokens.
BATCH_CHUNKS = 256
#: Stage of a source that could not be read to its end.
SOURCE_STAGE = "source"
#: Metadata of a PDF: the characters at which its pages begin.
PAGES = "pages"
#: Duplicates named one by one in the log; the rest is counted.
MAX_NAMED_DUPLICATES = 20


@dataclass
class Pending:
    """What was read since the last window was written."""

    documents: list[Document] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    num_chars: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def is_due(self) -> bool:
        return (
            len(self.documents) + len(self.unreadable) >= WINDOW_DOCUMENTS
            or self.num_chars >= WINDOW_CHARS
            or time.monotonic() - self.since > WINDOW_S
        )

    def add(self, item: Document | Unreadable) -> None:
        if isinstance(item, Document):
            self.documents.append(item)
            self.num_chars += len(item.text)
        else:
            self.unreadable.append(item)


class ObservationNumbers:
    """One number per window of documents: drawn before the first of them is opened, so before each of them
    is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._current: int | None = None

    def draw(self) -> int:
        if self._current is None:
            self._current = self._ledger.draw_observation()
        return self._current

    def renew(self) -> None:
        """The window is written: what is opened from here on takes a new number."""
        self._current = None


class Planner:
    """Reads a source to its end and plans it for one run; one thread.

    chunker: called for the first document that must be cut, so that an unchanged source never loads a
    tokenizer.
    on_queued: told after each window that batches may have been queued. wait_for_room: blocks while too much
    is ready.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: Run,
        chunker: Callable[[], Chunker],
        *,
        batch_tokens: int,
        on_queued: Callable[[Window], None],
        wait_for_room: Callable[[], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._run = run
        self._chunker = chunker
        self._batch_tokens = batch_tokens
        self._on_queued = on_queued
        self._wait_for_room = wait_for_room
        self._should_stop = should_stop
        self._num_named = 0
        #: False once a record could not even be told by its id: it may be any of those that seem to have
        #: vanished.
        self.may_prune = True

    def plan_source(self, source: Source) -> bool:
        """Read and plan until the end; False when it was asked to stop before."""
        numbers = ObservationNumbers(self._ledger)
        pending = Pending()
        for item in self._items(source, numbers):
            pending.add(item)
            if isinstance(item, Unreadable) and item.stage in (LINE_STAGE, SOURCE_STAGE):
                self.may_prune = False
            if self._should_stop():
                return False
            if pending.is_due:
                self._flush(pending)
                pending = Pending()
                numbers.renew()
                self._wait_for_room()
        self._flush(pending)
        return not self._should_stop()

    def _items(self, source: Source, numbers: ObservationNumbers) -> Iterator[Document | Unreadable]:
        """What the source yields; where it breaks off, that is one more thing that could not be read."""
        position = 0
        try:
            for item in source.read(numbers.draw):
                position = item.position
                yield item
        except SourceError as exc:
            yield Unreadable(self._run.source, position + 1, str(exc), SOURCE_STAGE)

    def _flush(self, pending: Pending) -> None:
        """Decide, cut and write; once more when a removal or a commit came in between."""
        while pending.documents or pending.unreadable:
            window = self._decide(pending)
            try:
                self._ledger.documents.write(self._run, window)
            except WindowOutdated:
                continue
            self._report(window.duplicates)
            self._on_queued(window)
            return

    def _decide(self, pending: Pending) -> Window:
        rows = self._ledger.documents.rows(
            self._run.collection, self._run.source, [document.doc_id for document in pending.documents]
        )
        decided: dict[Decision, list[Document]] = {decision: [] for decision in Decision}
        taken: dict[str, int] = {}
        for document in pending.documents:
            if document.doc_id in taken:  # the first of its id in this window has the lower position
                decided[Decision.DUPLICATE].append(document)
                continue
            decision = decide(rows.get(document.doc_id), document, self._run.scan)
            decided[decision].append(document)
            if decision is not Decision.DUPLICATE:
                taken[document.doc_id] = document.position
        plans, batches, num_truncated = self._cut(decided, rows)
        return Window(
            plans=plans,
            batches=batches,
            skips=decided[Decision.SKIP],
            duplicates=decided[Decision.DUPLICATE],
            stale=decided[Decision.STALE],
            unreadable=pending.unreadable,
            num_truncated=num_truncated,
        )

    def _cut(
        self, decided: dict[Decision, list[Document]], rows: dict[str, DocumentRow]
    ) -> tuple[list[Plan], list[NewBatch], int]:
        """Cut what is planned into chunks and pack them; the generation is the row's next one."""
        plans: list[Plan] = []
        cut: list[tuple[Plan, Sequence[Chunk]]] = []
        for decision in (Decision.EMBED, Decision.PAYLOAD, Decision.EMPTY):
            documents = decided[decision]
            for document, chunks in zip(documents, self._chunks(decision, documents), strict=True):
                row = rows.get(document.doc_id)
                plan = Plan(document, decision, (row.generation if row else 0) + 1, len(chunks))
                plans.append(plan)
                if chunks:
                    cut.append((plan, chunks))
        num_truncated = sum(chunk.is_truncated for _, chunks in cut for chunk in chunks)
        return plans, list(self._pack(cut)), num_truncated

    def _chunks(self, decision: Decision, documents: Sequence[Document]) -> Iterator[list[Chunk]]:
        if decision is Decision.EMPTY or not documents:
            return iter([[] for _ in documents])
        return self._chunker().chunk_batch([document.text for document in documents])

    def _pack(self, cut: Sequence[tuple[Plan, Sequence[Chunk]]]) -> Iterator[NewBatch]:
        if not cut:
            return
        from embedctl.pipeline.payload import (  # Arrow only when there is something to queue
            QueuedChunk,
            QueuedDocument,
            encode_chunks,
            pack_chunks,
        )

        queued = []
        for plan, chunks in cut:
            # where pages begin is of use for cutting; a point gets the number of its own page
            metadata = dict(plan.document.metadata)
            pages = metadata.pop(PAGES, None) if plan.document.reader.startswith("pdf/") else None
            document = QueuedDocument(plan.document.doc_id, plan.generation, metadata)
            for chunk in chunks:
                text = plan.document.text[chunk.start : chunk.end]
                queued.append(
                    QueuedChunk(
                        document,
                        chunk.ordinal,
                        chunk.start,
                        chunk.end,
                        text,
                        chunk.token_ids,
                        chunk.num_prompt_tokens,
                        chunk.input_hash,
                        bisect_right(pages, chunk.start) if pages else None,
                    )
                )
        for batch in pack_chunks(queued, self._batch_tokens, BATCH_CHUNKS):
            yield NewBatch(encode_chunks(batch), len(batch), sum(chunk.num_tokens for chunk in batch))

    def _report(self, duplicates: Sequence[Document]) -> None:
        for document in duplicates:
            if self._num_named < MAX_NAMED_DUPLICATES:
                self._num_named += 1
                logger.warning(
                    "Id %r occurs again at position %d of the source; the first one counts",
                    document.doc_id,
                    document.position,
                    extra={"action": "duplicate_id"},
                )
