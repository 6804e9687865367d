"""How fast the chunker is, against the plain encoding of the same texts with offsets.

    python benchmarks/chunking.py [--data DIR] [--rounds N]

DIR holds BEIR's SciFact (scifact/corpus.jsonl.gz). Prints one JSON object. Times are CPU times of one thread;
ratios are medians of interleaved rounds.
"""

import argparse
import base64
import gzip
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import truediv
from pathlib import Path
from typing import TypeVar

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from embedctl.engine.spec import ModelSpec, read_model_spec
from embedctl.engine.tokenizer import load_tokenizer
from embedctl.pipeline.chunking import Chunker, Chunking
from embedctl.pipeline.models import DEFAULT_MODEL, resolve_model

Result = TypeVar("Result")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    spec = read_model_spec(resolve_model(DEFAULT_MODEL).folder)
    abstracts = read_abstracts(options.data)
    report = {
        "scifact": compare(spec, abstracts, Chunking(), options.rounds),
        "scifact, chunks of 100": compare(
            spec, abstracts, Chunking(chunk_tokens=100, overlap=0), options.rounds
        ),
        "one prose document": compare(spec, [" ".join(abstracts)], Chunking(), options.rounds),
        "seconds": worst_cases(spec, " ".join(abstracts)),
    }
    print(json.dumps(report, indent=2))


def read_abstracts(data: Path, count: int = 400) -> list[str]:
    with gzip.open(data / "scifact" / "corpus.jsonl.gz") as lines:
        records = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    return [f"{record['title']} {record['text']}" for record in records]


def compare(spec: ModelSpec, texts: Sequence[str], chunking: Chunking, rounds: int) -> dict[str, float]:
    """ratio: time of plain encoding over time of chunking; of the best rounds, too, for busy machines."""
    plain = Tokenizer.from_file(str(spec.tokenizer_file))
    plain.no_truncation()
    plain.no_padding()
    chunker = Chunker(load_tokenizer(spec), chunking, spec.max_tokens, spec.document_prompt)
    plains, chunkings = [], []
    for _ in range(rounds):
        plain_s, _ = timed(lambda: [encoding.offsets for encoding in plain.encode_batch(list(texts))])
        chunk_s, chunks = timed(lambda: [chunk for text in texts for chunk in chunker.chunk(text)])
        plains.append(plain_s)
        chunkings.append(chunk_s)
    return {
        "ratio": round(statistics.median(map(truediv, plains, chunkings)), 3),
        "ratio_of_best": round(min(plains) / min(chunkings), 3),
        "best_chunks_per_s": round(len(chunks) / min(chunkings)),
        "tokens_per_chunk": round(sum(chunk.num_tokens for chunk in chunks) / len(chunks), 1),
    }


def worst_cases(spec: ModelSpec, prose: str) -> dict[str, float]:
    """Seconds for single documents that have brought chunkers down."""
    chunker = Chunker(load_tokenizer(spec), Chunking(), spec.max_tokens)
    four_mb = (prose * (1 + 4_000_000 // len(prose)))[:4_000_000]
    texts = {
        "2 MB prose": four_mb[:2_000_000],
        "4 MB prose": four_mb,
        "3 MB base64 in one line": base64.b64encode(random.Random(1).randbytes(2_250_000)).decode(),
        "3 MB letters in one line": "abcdefghij" * 300_000,
        "1 M characters of Chinese": "检索系统需要在毫秒内回答查询。" * 66_666,
        "1 M combining marks": "e" + "\u0301" * 1_000_000,
    }
    return {name: round(timed(partial(chunker.chunk, text))[0], 2) for name, text in texts.items()}


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


if __name__ == "__main__":
    main()
