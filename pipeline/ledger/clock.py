"""The database's own clock: seconds since 1970 as a float, the same expression on both dialects."""

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now(FunctionElement[float]):  # noqa: N801  (reads as an SQL function)
    """Seconds since the epoch, read while the statement runs."""

    type = Float()
    inherit_cache = True


@compiles(now, "sqlite")
def _sqlite_now(element: Any, compiler: Any, **options: Any) -> str:
    # unixepoch('subsec') needs SQLite 3.42; the Julian day is exact to the millisecond in all of them
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _postgresql_now(element: Any, compiler: Any, **options: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"
