"""First tables: versions, collections, sources, runs, documents, batches, failures."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


IDENTITY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("doc_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("served", sa.BigInteger(), nullable=False),
        sa.Column("observation", sa.BigInteger(), nullable=False),
        sa.Column("enumeration", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("input_hash", sa.Text(), nullable=False),
        sa.Column("payload_hash", sa.Text(), nullable=False),
        sa.Column("num_chunks", sa.Integer(), nullable=False),
        sa.Column("chunks_left", sa.Integer(), nullable=False),
        sa.Column("chunks_dead", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('open', 'cleaning', 'complete', 'partial', 'pruning', 'gone')",
            name=op.f("ck_documents_state_known"),
        ),
        sa.CheckConstraint(
            "outcome IN ('embedded', 'payload_only', 'empty', 'removed')",
            name=op.f("ck_documents_outcome_known"),
        ),
        sa.PrimaryKeyConstraint("collection", "source", "doc_id", name=op.f("pk_documents")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_documents_at_work",
        "documents",
        ["collection", "source", "state"],
        unique=False,
        **_where("state IN ('open', 'cleaning', 'pruning')"),
    )

    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("observations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tick_owner", sa.Text(), server_default="", nullable=False),
        sa.Column("tick_until", sa.Double(), server_default="0", nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ledger_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    op.create_table(
        "spaces",
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("definition", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", name=op.f("pk_spaces")),
    )
    op.create_table(
        "stragglers",
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("doc_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "collection", "source", "doc_id", "batch_id", "attempt", name=op.f("pk_stragglers")
        ),
    )
    op.create_table(
        "versions",
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("chunking", JSON, nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("provenance", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["space_id"], ["spaces.space_id"], name=op.f("fk_versions_space_id_spaces")),
        sa.PrimaryKeyConstraint("label", name=op.f("pk_versions")),
    )
    op.create_table(
        "indexes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("live_version", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["live_version"], ["versions.label"], name=op.f("fk_indexes_live_version_versions")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_indexes")),
    )
    op.create_table(
        "collections",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("index_name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["index_name"], ["indexes.name"], name=op.f("fk_collections_index_name_indexes")
        ),
        sa.ForeignKeyConstraint(
            ["version"], ["versions.label"], name=op.f("fk_collections_version_versions")
        ),
        sa.CheckConstraint(
            "state IN ('building', 'live', 'retired')", name=op.f("ck_collections_state_known")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_collections")),
    )
    op.create_index(
        "uq_collections_index_name_version", "collections", ["index_name", "version"], unique=True
    )

    op.create_table(
        "sources",
        sa.Column("index_name", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["index_name"], ["indexes.name"], name=op.f("fk_sources_index_name_indexes")),
        sa.PrimaryKeyConstraint("index_name", "label", name=op.f("pk_sources")),
    )
    op.create_table(
        "failures",
        sa.Column("id", IDENTITY, autoincrement=True, nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("doc_id", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("enumeration", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["collection"], ["collections.name"], name=op.f("fk_failures_collection_collections")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_failures")),
    )
    op.create_index(
        "uq_failures_document", "failures", ["collection", "source", "doc_id", "ordinal"], unique=True
    )

    op.create_table(
        "runs",
        sa.Column("id", IDENTITY, autoincrement=True, nullable=False),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("scan", sa.BigInteger(), nullable=False),
        sa.Column("reader", sa.Text(), nullable=False),
        sa.Column("reader_until", sa.Double(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("busy_s", sa.Double(), server_default="0", nullable=False),
        sa.Column("seen", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unchanged", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("duplicates", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("unreadable", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pruned", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("not_pruned", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chunks_embedded", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chunks_reused", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chunks_deleted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chunks_truncated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("store_surplus", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["collection"], ["collections.name"], name=op.f("fk_runs_collection_collections")
        ),
        sa.CheckConstraint(
            "state IN ('open', 'enumerated', 'done', 'partial', 'cancelled')",
            name=op.f("ck_runs_state_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(
        "uq_runs_one_open",
        "runs",
        ["collection", "source"],
        unique=True,
        **_where("state IN ('open', 'enumerated')"),
    )

    op.create_table(
        "batches",
        sa.Column("id", IDENTITY, autoincrement=True, nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), server_default="", nullable=False),
        sa.Column("lease_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("not_before", sa.Double(), server_default="0", nullable=False),
        sa.Column("num_chunks", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_batches_run_id_runs")),
        sa.CheckConstraint("state IN ('ready', 'leased')", name=op.f("ck_batches_state_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_batches_ready", "batches", ["run_id", "id"], unique=False, **_where("state = 'ready'")
    )


def downgrade() -> None:

    op.drop_table("batches")

    op.drop_table("runs")

    op.drop_table("failures")
    op.drop_table("sources")

    op.drop_table("collections")
    op.drop_table("indexes")
    op.drop_table("versions")
    op.drop_table("stragglers")
    op.drop_table("spaces")
    op.drop_table("ledger")

    op.drop_table("documents")
