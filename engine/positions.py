"""Where a model family begins to count positions."""

from torch import nn


def position_offset(model: nn.Module) -> int:
    """0, or padding_idx + 1 for the RoBERTa family.

    Those modules keep an integer padding_idx beside a learned table of positions: their tables begin with
    rows for padding, and positions counted from 0 shift every vector without an error.
    """
    for module in model.modules():
        padding_idx = getattr(module, "padding_idx", None)
        if isinstance(padding_idx, int) and isinstance(
            getattr(module, "position_embeddings", None), nn.Embedding
        ):
            return padding_idx + 1
    return 0
