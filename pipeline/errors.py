"""Errors of the pipeline. The command line prints the message and exits with `exit_code`."""


class EmbedctlError(Exception):
    """Something went wrong."""

    exit_code = 1
    #: True when the same work may succeed later without a change.
    retryable = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class UsageError(EmbedctlError):
    """The command was used in a way that cannot work."""

    exit_code = 2


class ConfigurationError(EmbedctlError):
    """A setting has a value that is not allowed."""

    exit_code = 2


class UnknownVersion(EmbedctlError):
    """No version has this label."""


class VersionConflict(EmbedctlError):
    """The label is bound to another space or chunking already."""


class SourceError(EmbedctlError):
    """The source cannot be read."""


class SourceConflict(EmbedctlError):
    """The source's label is bound to another path."""


class RunBusy(EmbedctlError):
    """Another process is indexing this source into this collection."""


class RunLost(EmbedctlError):
    """Another process took this run over; this one stops."""


class LedgerError(EmbedctlError):
    """The ledger cannot be used."""


class LedgerBusy(LedgerError):
    """The ledger was locked by another process for too long."""

    retryable = True


class StoreError(EmbedctlError):
    """The vector store refused the request."""


class StoreUnavailable(StoreError):
    """The vector store does not answer."""

    retryable = True


class ForeignCollection(StoreError):
    """The collection belongs to another embedding space or another ledger."""


class CollectionMissing(StoreError):
    """The collection is not in the store."""


class DiskFull(EmbedctlError):
    """No space is left on the disk; free some and run the command again, nothing is lost."""
