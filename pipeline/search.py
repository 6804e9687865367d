"""Search: a query embedded with the model of the collection it is compared with, hits grouped by document."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embedctl.engine.base import EmbeddingEngine
from embedctl.pipeline.stores.base import Collection, Hit, VectorStore

#: Chunks asked for per document wanted, at first; doubled while too few documents are among them.
CHUNKS_PER_DOCUMENT = 4
MAX_CHUNKS = 10_000
#: Letters by which two forms of a word are taken for the same when a snippet is chosen.
STEM_CHARS = 5


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A document by its best chunk, or one chunk: `canonical_text[start:end]` is the text."""

    score: float
    doc_id: str
    source: str
    start: int
    end: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("score", "doc_id", "source", "start", "end", "text")}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first, and the version, space and collection that they and the query's vector belong
    to."""

    collection: Collection
    hits: Sequence[SearchHit]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.collection.version,
            "space": self.collection.space,
            "collection": self.collection.name,
            "hits": [hit.to_json() for hit in self.hits],
        }


def search(
    store: VectorStore,
    collection: Collection,
    engine: EmbeddingEngine,
    query: str,
    k: int,
    *,
    by_chunk: bool = False,
) -> SearchResult:
    """The k nearest documents (or chunks). `engine` is that of the collection's version: the caller resolves
    both as one."""
    vector = engine.embed([query], "query")[0].astype(np.float32, copy=False)
    limit = k if by_chunk else k * CHUNKS_PER_DOCUMENT
    while True:
        found = store.search(collection, vector, limit)
        hits = [_to_hit(hit) for hit in found]
        chosen = hits if by_chunk else best_per_document(hits)
        if len(chosen) >= k or len(found) < limit or limit >= MAX_CHUNKS:
            return SearchResult(collection, chosen[:k])
        limit = min(MAX_CHUNKS, limit * 4)


def best_per_document(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Each document once, as its best chunk; hits come best first and stay so."""
    best: dict[tuple[str, str], SearchHit] = {}
    for hit in hits:
        best.setdefault((hit.source, hit.doc_id), hit)
    return list(best.values())


def snippet(text: str, query: str, num_chars: int) -> str:
    """The part of a chunk that says most about the query, as one line of at most `num_chars`, cut at words.

    Words count by how rare they are in the chunk, so that those of every sentence do not decide.
    """
    line = " ".join(text.split())
    if len(line) <= num_chars:
        return line
    start = _sentence_start(line, _best_start(line, query, num_chars), num_chars)
    end = start + num_chars
    cut = line[start:end] if end >= len(line) else line[start:end].rpartition(" ")[0]
    return f"{'… ' if start else ''}{cut}{' …' if start + len(cut) < len(line) else ''}"


def _best_start(line: str, query: str, num_chars: int) -> int:
    """Where the window with the highest sum of distinct, rare words of the query begins."""
    wanted = {word[:STEM_CHARS] for word in re.findall(r"\w+", query.lower()) if len(word) > 3}
    places = [
        (match.start(), stem)
        for match in re.finditer(r"\w+", line)
        if (stem := match.group().lower()[:STEM_CHARS]) in wanted
    ]
    occurrences = Counter(stem for _, stem in places)

    def worth(start: int) -> float:
        inside = {stem for at, stem in places if start <= at < start + num_chars}
        return sum(1 / occurrences[stem] for stem in inside)

    return max((at for at, _ in places), key=worth, default=0)


def _sentence_start(line: str, at: int, num_chars: int) -> int:
    """The beginning of the sentence that `at` is in, if it is near; else a word a little before."""
    at = min(at, len(line) - num_chars)
    if at <= 0:
        return 0
    ends = [match.end() for match in re.finditer(r"[.:!?|] ", line[:at])]
    if ends and at - ends[-1] <= num_chars // 3:
        return ends[-1]
    return line.find(" ", max(0, at - num_chars // 8)) + 1


def _to_hit(hit: Hit) -> SearchHit:
    payload = hit.payload
    return SearchHit(
        score=hit.score,
        doc_id=str(payload["doc_id"]),
        source=str(payload["source"]),
        start=int(payload["start"]),
        end=int(payload["end"]),
        text=str(payload["text"]),
    )
