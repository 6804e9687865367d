"""`embedctl search`: which collection, and the engine of that collection's version."""

from embedctl.pipeline.errors import UsageError
from embedctl.pipeline.ledger.collections import CollectionRow, NothingLive, collection_name
from embedctl.pipeline.readers.sanitize import sanitize_text
from embedctl.pipeline.search import SearchResult, search
from embedctl.pipeline.session import Session
from embedctl.pipeline.version import open_version


def search_index(
    session: Session,
    query: str,
    k: int,
    *,
    index: str | None = None,
    model: str | None = None,
    by_chunk: bool = False,
) -> SearchResult:
    """Search the index's live collection, or the one of `model`. Collection and engine are resolved as one
    unit."""
    query = sanitize_text(query)
    if not query.strip():
        raise UsageError("The query is empty; say what to look for.")
    row = _collection(session, index or session.settings.index, model)
    version = open_version(session, row.version)
    try:
        engine = version.engine()
        return search(session.store, session.catalog.describe(row), engine, query, k, by_chunk=by_chunk)
    finally:
        version.close()


def _collection(session: Session, index: str, model: str | None) -> CollectionRow:
    if model is None:
        return session.ledger.collections.live(index)
    session.ledger.versions.get(model)
    row = session.ledger.collections.find(collection_name(index, model))
    if row is None:
        raise NothingLive(
            f"Index {index!r} has no collection at {model}; make one with `embedctl index PATH --model "
            f"{model}`."
        )
    return row
