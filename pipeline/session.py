"""What every command works with: the ledger, the store, and the catalog between them."""

from functools import cached_property
from types import TracebackType
from typing import Self

from embedctl.pipeline.catalog import Catalog
from embedctl.pipeline.errors import LedgerError
from embedctl.pipeline.labels import checked_path
from embedctl.pipeline.ledger.ledger import Ledger
from embedctl.pipeline.owner import new_owner
from embedctl.pipeline.settings import Settings
from embedctl.pipeline.stores.base import VectorStore


class Session:
    """Opens the ledger at once and the store when it is first used. Close it, or use it as a context
    manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.owner = new_owner()
        checked_path(settings.home)
        try:
            settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds texts
        except OSError as exc:
            raise LedgerError(f"The folder {settings.home} cannot be made: {exc.strerror}.") from exc
        self.ledger = Ledger(settings.ledger_url)
        self.catalog = Catalog(self.ledger)

    @cached_property
    def store(self) -> VectorStore:
        from embedctl.pipeline.stores.client import StoreClient

        settings = self.settings
        return StoreClient(
            settings.home, self.owner, idle_s=settings.store_idle_s, timeout_s=settings.request_timeout_s
        )

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
