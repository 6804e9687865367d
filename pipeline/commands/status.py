"""`embedctl status`: once, or again every second."""

import contextlib
import time

import orjson

from embedctl.pipeline.commands.display import clear_screen, show_status
from embedctl.pipeline.errors import UsageError
from embedctl.pipeline.session import Session
from embedctl.pipeline.status import Status, read_status

WATCH_S = 1.0


def show_current_status(session: Session, run_id: int | None, *, watch: bool, as_json: bool) -> None:
    """Print the status; with `watch` until no run that is shown is open, or Ctrl-C."""
    if watch and as_json:
        raise UsageError("--watch is for people; call `status --json` as often as you need it.")
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(session, run_id)
    elif as_json:
        print(orjson.dumps(_to_json(session, run_id), option=orjson.OPT_INDENT_2).decode())
    else:
        show_status(_read(session, run_id))


def _watch(session: Session, run_id: int | None) -> None:
    while True:
        status = _read(session, run_id)
        clear_screen()
        show_status(status)
        if not any(run.run.is_open for run in status.runs):
            return
        time.sleep(WATCH_S)


def _to_json(session: Session, run_id: int | None) -> dict[str, object]:
    status = _read(session, run_id)
    return {
        "indexes": [row.to_json() for row in status.collections],
        "runs": [run.to_json(session.ledger) for run in status.runs],
    }


def _read(session: Session, run_id: int | None) -> Status:
    status = read_status(session.ledger, run_id)
    if run_id is not None and not status.runs:
        raise UsageError(f"There is no run {run_id}; `embedctl status` lists the newest.")
    return status
