"""What the tick does with attempts that may still be writing."""

from collections.abc import Iterator

import pytest
from rehearsal import Record, Rehearsal
from sqlalchemy import select

from embedctl.pipeline.ledger.maintenance import Cleaning
from embedctl.pipeline.ledger.tables import stragglers
from embedctl.pipeline.owner import new_owner
from embedctl.pipeline.session import Session
from embedctl.pipeline.tick import Tick


@pytest.fixture
def session(rehearsal: Rehearsal) -> Iterator[Session]:
    """A session after one document was indexed."""
    rehearsal.index([Record("a.txt", "some text")])
    with rehearsal.session() as opened:
        yield opened


def add_straggler(session: Session, owner: str, seconds_left: float) -> None:
    row = {"collection": "docs__v1", "source": "notes", "doc_id": "a.txt", "batch_id": 1, "attempt": 1}
    with session.ledger.db.write() as connection:
        ends_at = session.ledger.now() + seconds_left
        connection.execute(stragglers.insert().values(**row, owner=owner, ends_at=ends_at))


def num_stragglers(session: Session) -> int:
    with session.ledger.db.read() as connection:
        return len(connection.execute(select(stragglers)).all())


@pytest.mark.parametrize(
    ("owner", "seconds_left", "is_swept"),
    [
        ("gone", 30.0, True),
        ("alive", 30.0, False),  # also where it has no connection to the store just now: it may make one
        ("alive", -1.0, True),
        ("elsewhere", 30.0, False),
    ],
)
def test_an_attempt_is_swept_when_its_process_is_gone_or_its_time_is_up(
    session, owner, seconds_left, is_swept
):
    host, _, _, _ = new_owner().rsplit("|", 3)
    owners = {
        "gone": f"{host}|999999999|1.00|abcdef12",
        "alive": new_owner(),
        "elsewhere": "another-host|1|1.00|abcdef12",
    }
    add_straggler(session, owners[owner], seconds_left)

    Tick(session.ledger, session.store, session.catalog, session.owner, 30.0).sweep()

    assert num_stragglers(session) == (0 if is_swept else 1)


def test_a_tick_with_much_to_clean_ends_in_time_and_the_next_one_goes_on(session, monkeypatch):
    """Who ticks has a reader's lease to keep."""
    tick = Tick(session.ledger, session.store, session.catalog, session.owner, 30.0)
    monkeypatch.setattr("embedctl.pipeline.tick.CLEAN_S", 0.1)
    endless = [Cleaning("docs__v1", "notes", "a.txt", 0, "cleaning")]
    monkeypatch.setattr(session.ledger.maintenance, "to_clean", lambda: endless)

    tick.clean()
