"""Observation numbers: one counter of the ledger, ascending for ever."""

from sqlalchemy import Connection, update

from embedctl.pipeline.ledger.tables import ledger


def draw_observation(connection: Connection) -> int:
    """Take the next number inside the caller's write transaction."""
    statement = update(ledger).values(observations=ledger.c.observations + 1).returning(ledger.c.observations)
    return int(connection.execute(statement).scalar_one())
