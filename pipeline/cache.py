"""Vectors by (space, exact model input), kept across runs in a bounded SQLite file."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

#: Evict down to this share of the limit, so that eviction does not run at every write.
LOW_WATER = 0.9
#: Bytes of an entry beside its vector: key, row and page overhead.
ENTRY_OVERHEAD_BYTES = 64


class VectorCache(Protocol):
    """Vectors of inputs that were computed before. A cache may forget anything at any time, and never fails
    its caller."""

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        """keys: input hashes. The ones that are known: hash -> (dim,) float32."""
        ...

    def put(self, vectors: Mapping[str, Vector]) -> None: ...

    def close(self) -> None: ...


class NoCache:
    """The cache that is off."""

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        return {}

    def put(self, vectors: Mapping[str, Vector]) -> None:
        """Forget them."""

    def close(self) -> None:
        """Nothing is open."""


class SqliteCache:
    """Least recently used vectors of one space in a file shared by all spaces, bounded by bytes.

    Thread-safe, and safe between processes. A file that cannot be read or written (damaged, disk full) makes
    it forget, not fail.
    """

    def __init__(self, path: Path, space_id: str, max_bytes: int) -> None:
        self._space = bytes.fromhex(space_id)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection = _open(path)

    def get(self, keys: Sequence[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        with self._forgiving() as connection:
            for key in sorted(set(keys)):
                row = connection.execute(
                    "SELECT vector FROM vectors WHERE key = ?", (self._key(key),)
                ).fetchone()
                if row is not None:
                    found[key] = np.frombuffer(row[0], np.float32)
            self._touch(connection, found)
        return found

    def put(self, vectors: Mapping[str, Vector]) -> None:
        with self._forgiving() as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = self._next_use(connection)
            # sorted keys land in neighbouring pages of the tree
            rows = [
                (self._key(key), np.ascontiguousarray(vectors[key], np.float32).tobytes(), now)
                for key in sorted(vectors)
            ]
            # an upsert, not a replace: a replaced row would not pass through the trigger that counts bytes
            connection.executemany(
                "INSERT INTO vectors (key, vector, used) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET used = excluded.used",
                rows,
            )
            self._evict(connection)
            connection.execute("COMMIT")

    def size_bytes(self) -> int:
        """What the entries take, of all spaces."""
        sizes: list[int] = []
        with self._forgiving() as connection:
            sizes.append(self._size(connection))
        return sum(sizes)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _key(self, input_hash: str) -> bytes:
        return self._space + bytes.fromhex(input_hash)

    def _touch(self, connection: sqlite3.Connection, found: Mapping[str, Vector]) -> None:
        if found:
            connection.execute("BEGIN IMMEDIATE")
            now = self._next_use(connection)
            connection.executemany(
                "UPDATE vectors SET used = ? WHERE key = ?", [(now, self._key(key)) for key in sorted(found)]
            )
            connection.execute("COMMIT")

    def _next_use(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT coalesce(max(used), 0) + 1 FROM vectors").fetchone()[0])

    def _size(self, connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT num_bytes FROM size").fetchone()
        return int(row[0])

    def _evict(self, connection: sqlite3.Connection) -> None:
        size = self._size(connection)
        while size > self._max_bytes:
            surplus = size - int(self._max_bytes * LOW_WATER)
            mean = max(1, size // max(1, connection.execute("SELECT count(*) FROM vectors").fetchone()[0]))
            connection.execute(
                "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used LIMIT ?)",
                (max(1, surplus // mean),),
            )
            size = self._size(connection)

    @contextmanager
    def _forgiving(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def open_cache(path: Path, space_id: str, max_bytes: int) -> VectorCache:
    """The cache of a space in this file; none at all with a bound of 0."""
    return SqliteCache(path, space_id, max_bytes) if max_bytes else NoCache()


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _prepared(path)
    except sqlite3.DatabaseError:
        # a cache is never worth a failure: start an empty one, in memory when not even that can be written
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            with suppress(OSError):
                name.unlink(missing_ok=True)
    try:
        return _prepared(path)
    except sqlite3.DatabaseError:
        return _prepared(Path(":memory:"))


def _prepared(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(
        "PRAGMA synchronous=OFF"
    )  # losing the newest entries in a power cut costs a computation
    connection.executescript(
        f"""
        CREATE TABLE IF NOT EXISTS vectors (
            key BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL
        );
        CREATE INDEX IF NOT EXISTS vectors_used ON vectors (used);
        CREATE TABLE IF NOT EXISTS size (id INTEGER PRIMARY KEY CHECK (id = 1), num_bytes INTEGER NOT NULL);
        INSERT OR IGNORE INTO size VALUES (1, 0);
        CREATE TRIGGER IF NOT EXISTS vectors_added AFTER INSERT ON vectors BEGIN
            UPDATE size SET num_bytes = num_bytes + length(new.vector) + {ENTRY_OVERHEAD_BYTES};
        END;
        CREATE TRIGGER IF NOT EXISTS vectors_removed AFTER DELETE ON vectors BEGIN
            UPDATE size SET num_bytes = num_bytes - length(old.vector) - {ENTRY_OVERHEAD_BYTES};
        END;
        """
    )
    return connection
