"""Tables of the ledger, for SQLite and PostgreSQL. Times are seconds since 1970 by the database's clock."""

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Identity = BigInteger().with_variant(Integer, "sqlite")
Json = JSON().with_variant(JSONB, "postgresql")


def _one_of(column: str, *values: str) -> CheckConstraint:
    return CheckConstraint(
        f"{column} IN ({', '.join(repr(value) for value in values)})", name=f"{column}_known"
    )


def literals(*values: str) -> list[ColumnElement[str]]:
    """Values written into the SQL: only so does SQLite see that a partial index covers the query."""
    return [literal_column(repr(value)) for value in values]


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


#: One row: who this ledger is, the observation counter, and the lease of the tick.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True),
    Column("ledger_id", Text, nullable=False),
    _count("observations"),
    Column("tick_owner", Text, nullable=False, server_default=""),
    Column("tick_until", Double, nullable=False, server_default="0"),
)

spaces = Table(
    "spaces",
    metadata,
    Column("space_id", Text, primary_key=True),
    Column("definition", Json, nullable=False),
    Column("created_at", Double, nullable=False),
)

#: A label, bound for ever to one space and one chunking.
versions = Table(
    "versions",
    metadata,
    Column("label", Text, primary_key=True),
    Column("space_id", Text, ForeignKey("spaces.space_id"), nullable=False),
    Column("chunking", Json, nullable=False),
    Column("ref", Text, nullable=False),
    Column("provenance", Json, nullable=False),
    Column("created_at", Double, nullable=False),
)

indexes = Table(
    "indexes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("live_version", Text, ForeignKey("versions.label")),
    Column("created_at", Double, nullable=False),
)

collections = Table(
    "collections",
    metadata,
    Column("name", Text, primary_key=True),
    Column("index_name", Text, ForeignKey("indexes.name"), nullable=False),
    Column("version", Text, ForeignKey("versions.label"), nullable=False),
    Column("state", Text, _one_of("state", "building", "live", "retired"), nullable=False),
    # raised by every plan and tombstone: a gate that compared two collections sees that one has moved
    _count("epoch"),
    Column("created_at", Double, nullable=False),
    Index("uq_collections_index_name_version", "index_name", "version", unique=True),
)

#: A label of an index, bound to a path.
sources = Table(
    "sources",
    metadata,
    Column("index_name", Text, ForeignKey("indexes.name"), primary_key=True),
    Column("label", Text, primary_key=True),
    Column("path", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

#: One execution of indexing for one (source, collection).
runs = Table(
    "runs",
    metadata,
    Column("id", Identity, primary_key=True, autoincrement=True),
    Column("collection", Text, ForeignKey("collections.name"), nullable=False),
    Column("source", Text, nullable=False),
    Column(
        "state", Text, _one_of("state", "open", "enumerated", "done", "partial", "cancelled"), nullable=False
    ),
    # the enumeration's number: drawn before the listing began; fences its reader, marks what it saw, dates
    # its prune
    Column("scan", BigInteger, nullable=False),
    Column("reader", Text, nullable=False),
    Column("reader_until", Double, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double),
    Column("busy_s", Double, nullable=False, server_default="0"),
    # of the newest enumeration
    _count("seen"),
    _count("unchanged"),
    _count("duplicates"),
    _count("unreadable"),
    # of the whole run
    _count("pruned"),
    _count("not_pruned"),
    _count("chunks_embedded"),
    _count("chunks_reused"),
    _count("chunks_deleted"),
    _count("chunks_truncated"),
    _count("tokens"),
    # at close: points of the source in the store less those in the ledger; anything but 0 is a finding
    Column("store_surplus", BigInteger),
    Index(
        "uq_runs_one_open",
        "collection",
        "source",
        unique=True,
        sqlite_where=text("state IN ('open', 'enumerated')"),
        postgresql_where=text("state IN ('open', 'enumerated')"),
    ),
)

documents = Table(
    "documents",
    metadata,
    Column("collection", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("doc_id", Text, primary_key=True),
    Column(
        "state",
        Text,
        _one_of("state", "open", "cleaning", "complete", "partial", "pruning", "gone"),
        nullable=False,
    ),
    # last generation given out; never reset
    Column("generation", BigInteger, nullable=False),
    # last generation whose points are all acknowledged
    Column("served", BigInteger, nullable=False),
    Column("observation", BigInteger, nullable=False),
    Column("enumeration", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("input_hash", Text, nullable=False),
    Column("payload_hash", Text, nullable=False),
    Column("num_chunks", Integer, nullable=False),
    Column("chunks_left", Integer, nullable=False),
    Column("chunks_dead", Integer, nullable=False),
    # the run that planned this generation, and what for
    Column("run_id", BigInteger, nullable=False),
    Column(
        "outcome", Text, _one_of("outcome", "embedded", "payload_only", "empty", "removed"), nullable=False
    ),
    Index(
        "ix_documents_at_work",
        "collection",
        "source",
        "state",
        sqlite_where=text("state IN ('open', 'cleaning', 'pruning')"),
        postgresql_where=text("state IN ('open', 'cleaning', 'pruning')"),
    ),
    sqlite_with_rowid=False,
)

#: Queued work. A batch that is done leaves the table in the transaction that counts it.
batches = Table(
    "batches",
    metadata,
    Column("id", Identity, primary_key=True, autoincrement=True),
    Column("run_id", BigInteger, ForeignKey("runs.id"), nullable=False),
    Column("state", Text, _one_of("state", "ready", "leased"), nullable=False),
    # incremented at claim, before work: the fencing token
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("lease_owner", Text, nullable=False, server_default=""),
    Column("lease_until", Double, nullable=False, server_default="0"),
    Column("not_before", Double, nullable=False, server_default="0"),
    Column("num_chunks", Integer, nullable=False),
    Column("num_tokens", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Index(
        "ix_batches_ready",
        "run_id",
        "id",
        sqlite_where=text("state = 'ready'"),
        postgresql_where=text("state = 'ready'"),
    ),
    # a done id is never given out again: a late commit must not meet another batch of its number
    sqlite_autoincrement=True,
)

#: Attempts that lost their batch but may still be writing: what they wrote for an old generation is swept
#: afterwards.
stragglers = Table(
    "stragglers",
    metadata,
    Column("collection", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("doc_id", Text, primary_key=True),
    Column("batch_id", BigInteger, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("owner", Text, nullable=False),
    # when the last request of the attempt is over at the latest
    Column("ends_at", Double, nullable=False),
)

#: What could not be read or embedded; ordinal -1 is the whole document.
failures = Table(
    "failures",
    metadata,
    Column("id", Identity, primary_key=True, autoincrement=True),
    Column("collection", Text, ForeignKey("collections.name"), nullable=False),
    Column("source", Text, nullable=False),
    Column("doc_id", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("stage", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("enumeration", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("uq_failures_document", "collection", "source", "doc_id", "ordinal", unique=True),
)

#: Documents that a run still has to do something for; covered by ix_documents_at_work.
is_at_work = documents.c.state.in_(literals("open", "cleaning", "pruning"))
#: Batches that may be claimed; covered by ix_batches_ready.
is_ready = batches.c.state == literals("ready")[0]
