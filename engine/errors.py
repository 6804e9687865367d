"""What can go wrong between token ids and vectors."""


class EngineError(Exception):
    """The engine failed."""

    #: True when the same work may succeed later without a change (out of memory, a lost device).
    retryable = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class ModelFilesError(EngineError):
    """The model's files are missing, unsafe or say something that embedctl does not know."""


class UnsupportedModel(EngineError):
    """The model's architecture, module or pooling is not supported."""


class InputTooLong(EngineError):
    """An input has more tokens than the model can read."""

    def __init__(self, num_tokens: int, max_tokens: int) -> None:
        super().__init__(f"An input has {num_tokens} tokens, the model reads at most {max_tokens}.")
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class InvalidVector(EngineError):
    """The model returned a vector that is not finite or has no length."""

    def __init__(self, message: str | None = None, indices: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        #: Positions, within the request, of the inputs that have no usable vector; all others have one.
        self.indices = indices


class InvalidInput(EngineError):
    """An input is not a sequence of the model's token ids."""


class InvalidEngineConfig(EngineError):
    """A setting of the engine has a value that is not allowed."""


class OutOfMemory(EngineError):
    """The device has too little memory for one step."""

    retryable = True


class EngineDied(EngineError):
    """The engine thread has ended; the process must be started again."""


class SelfCheckFailed(EngineError):
    """Packed and one-by-one results of this model differ: its attention is not isolated between sequences."""
