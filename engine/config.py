"""Settings of one engine."""

from dataclasses import dataclass

from embedctl.engine.errors import InvalidEngineConfig

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine uses its device.

    device: "auto" takes CUDA when there is one. num_threads: of one CPU step; None takes the physical cores
    that this process may use. max_step_tokens: tokens of one device execution, padding included; None takes
    the measured default of the device. stall_s: seconds without a finished step after which `embed` gives up.
    """

    device: str = "auto"
    num_threads: int | None = None
    max_step_tokens: int | None = None
    stall_s: float = 300.0

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise InvalidEngineConfig(f"device={self.device!r} is not one of {', '.join(DEVICES)}.")
        for name in ("num_threads", "max_step_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidEngineConfig(f"{name}={value} is not a positive number.")
        if self.stall_s <= 0:
            raise InvalidEngineConfig(f"stall_s={self.stall_s} is not a positive number of seconds.")
