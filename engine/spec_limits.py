"""How many tokens one input of a model may have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embedctl.engine.errors import ModelFilesError

#: Tokenizers without a limit declare int(1e30); no encoder reads this many.
_NO_LIMIT = 10**7

#: Families whose first position is pad_token_id + 1, so that their position table is that much shorter than
#: it looks (RoBERTa's 514 positions hold 512 tokens). The value is the pad id where the config has none.
_OFFSET_FAMILIES = dict.fromkeys(
    (
        "camembert",
        "data2vec-text",
        "ibert",
        "lilt",
        "longformer",
        "luke",
        "markuplm",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    ),
    1,
)


def position_offset_of(config: Mapping[str, Any]) -> int:
    """Position of an input's first token in the model's position table: 0 for most families."""
    pad = _OFFSET_FAMILIES.get(str(config.get("model_type")))
    return 0 if pad is None else int(config.get("pad_token_id", pad)) + 1


def max_tokens_of(
    folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any], tokenizer_config: Mapping[str, Any]
) -> int:
    """The smallest declared limit, specials included.

    settings: sentence_bert_config.json. Raises ModelFilesError when no file declares one.
    """
    limits = list(_declared_limits(config, settings, tokenizer_config))
    if not limits:
        raise ModelFilesError(
            f"No file in {folder} says how many tokens the model reads: "
            "add max_seq_length to sentence_bert_config.json, as the model's card says."
        )
    return min(limits)


def _declared_limits(
    config: Mapping[str, Any], settings: Mapping[str, Any], tokenizer_config: Mapping[str, Any]
) -> Iterator[int]:
    processor = settings.get("processor_kwargs") or settings.get("tokenizer_args") or {}
    positions = config.get("max_position_embeddings")
    declared = [
        settings.get("max_seq_length"),
        processor.get("model_max_length"),
        tokenizer_config.get("model_max_length"),
        # XLNet says -1 for "no limit"
        positions - position_offset_of(config) if isinstance(positions, int) and positions > 0 else None,
    ]
    for limit in declared:
        if isinstance(limit, int | float) and 0 < limit < _NO_LIMIT:
            yield int(limit)
