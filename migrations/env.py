"""Alembic's entry: it runs on the connection that it is given, never on a URL."""

from alembic import context

from embedctl.pipeline.ledger.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Migrations run through `embedctl`, which hands over its connection.")

context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
