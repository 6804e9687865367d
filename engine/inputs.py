"""What an engine accepts."""

from collections.abc import Sequence

import numpy as np

from embedctl.engine.errors import InputTooLong, InvalidInput
from embedctl.engine.packing import TokenIds


def check_token_ids(token_ids: Sequence[TokenIds], max_tokens: int, vocab_size: int | None = None) -> None:
    """Raises InputTooLong, or InvalidInput for an empty input or an id outside of the vocabulary.

    On a GPU such an id would poison the process, so it is refused before it gets there.
    """
    for index, ids in enumerate(token_ids):
        if len(ids) > max_tokens:
            raise InputTooLong(len(ids), max_tokens)
        if not len(ids):
            raise InvalidInput(f"Input {index} has no tokens.")
    if len(token_ids) and vocab_size is not None:
        ids = np.concatenate(token_ids)
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise InvalidInput(f"An input has a token id outside of the model's vocabulary of {vocab_size}.")
