"""Handles of vectors that may not be computed yet."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class LazyTensor(Protocol):
    """What a step returns at once: the device may still be working on it."""

    def is_ready(self) -> bool:
        """True when `result` returns without waiting."""
        ...

    def result(self) -> Vectors:
        """Wait for the vectors: (num_sequences, dim) float32, in the order of the packed sequences."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ReadyTensor:
    """A LazyTensor of a device that computes while the caller waits: a CPU."""

    vectors: Vectors

    def is_ready(self) -> bool:
        return True

    def result(self) -> Vectors:
        return self.vectors
