"""Which kind of source a path is."""

import os
import stat
from pathlib import Path

from embedctl.pipeline.errors import SourceError
from embedctl.pipeline.readers.folder import FileSource, FolderSource
from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.problem import reason_of
from embedctl.pipeline.readers.records import RecordSource
from embedctl.pipeline.readers.tally import CountingSource

RECORD_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


def open_source(path: Path, options: ReaderOptions) -> CountingSource:
    """The source at a path: a folder, a file of records by its suffix, or one file.

    Raises SourceError when nothing can be read there, ConfigurationError when a pattern is not valid.
    """
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except FileNotFoundError as exc:
        raise SourceError(f"There is no file or folder {path}; check the path.") from exc
    except (OSError, RuntimeError) as exc:  # RuntimeError: a loop of links, before Python 3.13
        reason = reason_of(exc) if isinstance(exc, OSError) else "It is a loop of links."
        raise SourceError(f"{path} cannot be read. {reason}") from exc
    return _open_kind(path, real, mode, options)


def _open_kind(path: Path, real: Path, mode: int, options: ReaderOptions) -> CountingSource:
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise SourceError(f"{path} is a FIFO, socket or device; name a folder or a file.")
    if not os.access(real, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        raise SourceError(f"{path} cannot be read: permission denied.")
    if stat.S_ISDIR(mode):
        return FolderSource(real, options)
    # the name that the user gave: a link may hide the suffix
    if path.name.lower().endswith(RECORD_SUFFIXES):
        return RecordSource(real, options)
    return FileSource(real, options)
