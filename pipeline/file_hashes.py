"""SHA-256 of files that rarely change, remembered so that an unchanged model is not read again."""

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


class FileHashes:
    """Hashes by (path, size, mtime_ns), kept in a small JSON file.

    Processes may share the file: each write replaces it whole, and a hash that another one's write lost is
    computed again. A file that cannot be read or written costs time only.
    """

    def __init__(self, cache_file: Path | None) -> None:
        """cache_file: made when first needed; None remembers nothing beyond this object."""
        self._cache_file = cache_file
        self._known: dict[str, Any] = {}
        self._is_loaded = cache_file is None

    def sha256(self, path: Path) -> str:
        """64 hex digits. Raises OSError when the file cannot be read."""
        key = str(path.resolve())
        stamp = _stamp(path)
        known = self._load().get(key)
        if isinstance(known, list) and known[:2] == stamp:
            return str(known[2])
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        # a file that changed meanwhile is hashed again next time
        if _stamp(path) == stamp:
            self._known[key] = [*stamp, found]
            self._save()
        return found

    def _load(self) -> dict[str, Any]:
        if not self._is_loaded and self._cache_file is not None:
            self._known |= _read(self._cache_file)
            self._is_loaded = True
        return self._known

    def _save(self) -> None:
        if self._cache_file is None:
            return
        try:
            _replace(
                self._cache_file, json.dumps(_read(self._cache_file) | self._known, indent=0, sort_keys=True)
            )
        except OSError as exc:
            logger.debug("File hashes are not kept: %s", exc, extra={"action": "file_hashes_not_kept"})


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read(cache_file: Path) -> dict[str, Any]:
    try:
        known = json.loads(cache_file.read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
