"""Embedding spaces: everything that changes a vector, and the name that follows from it.

Where the weights came from is not in it: a moved folder or a container is the same space.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from embedctl.engine.spec import ModelSpec
from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.file_hashes import FileHashes

PRECISIONS = ("fp32", "bf16", "fp16", "int8")

#: What stands for the hashes of the dummy's weights and byte tokenizer; a new number when its vectors change.
DUMMY_WEIGHTS = "embedctl-dummy/1"
DUMMY_TOKENIZER = "embedctl-bytes/1"

#: Keys of config.json that say where a model came from or how it is run, and change no vector.
_NO_ARCHITECTURE = frozenset(
    {
        "_name_or_path",
        "_attn_implementation_autoset",
        "delay_ms",
        "dtype",
        "gradient_checkpointing",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)


@dataclass(frozen=True, slots=True)
class EmbeddingSpace:
    """All that decides which vector a text gets; vectors are comparable only within one.

    weights, tokenizer: SHA-256 of the files (of several weight files: over their hashes in order).
    architecture: config.json without provenance. dense: (in, out, has_bias, activation) of each dense layer.
    dimensions: length of a vector after truncation. max_tokens: per input, specials included.
    precision: "fp32", "bf16", "fp16" or "int8".
    """

    weights: str
    tokenizer: str
    architecture: Mapping[str, Any]
    pooling: tuple[str, ...]
    include_prompt: bool
    dense: tuple[tuple[int, int, bool, str], ...]
    normalize: bool
    dimensions: int
    metric: str
    document_prompt: str
    query_prompt: str
    max_tokens: int
    do_lower_case: bool
    precision: str

    @property
    def space_id(self) -> str:
        """16 hex digits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Canonical: equal spaces have equal JSON, byte by byte."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_json(cls, text: str) -> "EmbeddingSpace":
        record = orjson.loads(text)
        record["pooling"] = tuple(record["pooling"])
        record["dense"] = tuple(tuple(layer) for layer in record["dense"])
        return cls(**record)


def differences(a: EmbeddingSpace, b: EmbeddingSpace) -> list[str]:
    """Names of the fields that make them two spaces; empty when they are one."""
    return [field.name for field in fields(a) if getattr(a, field.name) != getattr(b, field.name)]


def build_space(
    spec: ModelSpec, precision: str, dimensions: int | None, hashes: FileHashes
) -> EmbeddingSpace:
    """The space of a model at a precision. dimensions: None keeps what the model gives.

    Reads the weight files once, through `hashes`. Raises ConfigurationError for a precision or length that
    cannot be had.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(f"Precision {precision!r} is not one of {', '.join(PRECISIONS)}.")
    return EmbeddingSpace(
        weights=_hash_weights(spec, hashes),
        tokenizer=hashes.sha256(spec.tokenizer_file) if spec.has_own_tokenizer else DUMMY_TOKENIZER,
        architecture={key: value for key, value in spec.config.items() if key not in _NO_ARCHITECTURE},
        pooling=spec.pooling,
        include_prompt=spec.include_prompt,
        dense=tuple((d.in_features, d.out_features, d.has_bias, d.activation) for d in spec.dense),
        normalize=spec.normalize,
        dimensions=_checked_dimensions(spec, dimensions),
        metric=spec.metric,
        document_prompt=spec.document_prompt,
        query_prompt=spec.query_prompt,
        max_tokens=spec.max_tokens,
        do_lower_case=spec.do_lower_case,
        precision=precision,
    )


def _checked_dimensions(spec: ModelSpec, wanted: int | None) -> int:
    dimensions = wanted or spec.truncate_dim or spec.embedding_dim
    if not 1 <= dimensions <= spec.embedding_dim or wanted == 0:
        raise ConfigurationError(
            f"{wanted if wanted is not None else dimensions} dimensions cannot be had: "
            f"the model gives {spec.embedding_dim}; take --dimensions {spec.embedding_dim} or less."
        )
    return dimensions


def _hash_weights(spec: ModelSpec, hashes: FileHashes) -> str:
    """Of one file its own SHA-256, as hubs show it; of several the SHA-256 over theirs."""
    if spec.is_dummy:
        return DUMMY_WEIGHTS
    each = [hashes.sha256(path) for path in (*spec.weight_files, *(dense.weights for dense in spec.dense))]
    return each[0] if len(each) == 1 else hashlib.sha256("\n".join(each).encode()).hexdigest()
