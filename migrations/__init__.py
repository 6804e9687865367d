"""Alembic environment and numbered revisions of the ledger."""
