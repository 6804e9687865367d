"""What a caller submitted, and how far it has got."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

from embedctl.engine.errors import InvalidVector
from embedctl.engine.lazy import Vectors
from embedctl.engine.packing import StepSize, TokenIds

#: At most this many sequences of one request are looked at for one step.
_LOOKAHEAD = 4096


class Request:
    """Sequences that share one future. Only the engine thread changes it after it was queued.

    order: positions of the sequences, longest first, so that neighbours in a step have near-equal lengths and
    a step too large for the memory comes first. cursor: how many of them have been scheduled.
    """

    def __init__(
        self,
        sequences: Sequence[TokenIds],
        num_prompt_tokens: Sequence[int] | None,
        embedding_dim: int,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.sequences = sequences
        self.num_prompt_tokens = num_prompt_tokens
        self.on_step = on_step
        self.future: Future[Vectors] = Future()
        lengths = np.fromiter((len(ids) for ids in sequences), dtype=np.int64, count=len(sequences))
        self.order: npt.NDArray[np.intp] = np.argsort(-lengths, kind="stable")
        self.cursor = 0
        self._lengths = lengths[self.order]
        self._vectors: Vectors = np.empty((len(sequences), embedding_dim), dtype=np.float32)
        self._invalid: list[int] = []
        self._num_done = 0

    @property
    def is_scheduled(self) -> bool:
        """True when every sequence has been given to a step."""
        return self.cursor == len(self.order)

    @property
    def is_over(self) -> bool:
        """True when nobody waits for it any more: answered, failed or cancelled."""
        return self.future.done()

    def take(
        self, size: StepSize, max_tokens: int, *, is_padded: bool
    ) -> tuple[npt.NDArray[np.intp], StepSize]:
        """The next positions that still fit into a step of this size, and its size with them."""
        ahead = self._lengths[self.cursor : self.cursor + _LOOKAHEAD]
        count = size.num_fitting(ahead, max_tokens, is_padded=is_padded)
        if not count:
            return self.order[:0], size
        taken = self.order[self.cursor : self.cursor + count]
        self.cursor += count
        return taken, size.plus(ahead[:count])

    def prompt_tokens(self, index: int) -> int:
        return 0 if self.num_prompt_tokens is None else self.num_prompt_tokens[index]

    def deliver(self, indices: Sequence[int], vectors: Vectors, invalid: Sequence[int]) -> None:
        """Take the vectors of these positions; with the last ones the future is answered."""
        self._vectors[list(indices)] = vectors
        self._invalid.extend(invalid)
        self._num_done += len(indices)
        if self.on_step is not None:
            self.on_step(self._num_done)
        if self._num_done == len(self.sequences):
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Fail the future; nothing happens when it is answered or cancelled already."""
        if not self.is_over and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _finish(self) -> None:
        if self._invalid:
            self.fail(_invalid_vectors(sorted(self._invalid)))
        elif not self.is_over and self.future.set_running_or_notify_cancel():
            self.future.set_result(self._vectors)


def _invalid_vectors(indices: Sequence[int]) -> InvalidVector:
    named = ", ".join(str(index) for index in indices[:10]) + (", ..." if len(indices) > 10 else "")
    return InvalidVector(
        f"The model gives no usable vector (not finite, or zero) for input {named}, in fp32 neither.",
        tuple(indices),
    )
