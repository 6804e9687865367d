"""What an engine has done so far."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """A snapshot, counted from the engine's start.

    num_tokens: real tokens; num_padded_tokens: tokens computed, padding included (equal where steps are
    packed); engine_s: seconds in which the device worked.
    """

    num_steps: int = 0
    num_sequences: int = 0
    num_tokens: int = 0
    num_padded_tokens: int = 0
    engine_s: float = 0.0

    @property
    def padding_waste(self) -> float:
        """Share of the computed tokens that were padding."""
        return 1.0 - self.num_tokens / self.num_padded_tokens if self.num_padded_tokens else 0.0

    def plus_step(
        self, num_sequences: int, num_tokens: int, num_padded_tokens: int, seconds: float
    ) -> "EngineCounters":
        return EngineCounters(
            num_steps=self.num_steps + 1,
            num_sequences=self.num_sequences + num_sequences,
            num_tokens=self.num_tokens + num_tokens,
            num_padded_tokens=self.num_padded_tokens + num_padded_tokens,
            engine_s=self.engine_s + seconds,
        )
