"""Sources of documents: folders and record files, decoded to canonical text.

Canonical text is what spans refer to. A file's text has `\\n` as its only line break; the text of a record is
taken as its JSON says. In both, NUL and lone surrogates are U+FFFD.
"""

from embedctl.pipeline.readers.opening import open_source
from embedctl.pipeline.readers.options import ReaderOptions
from embedctl.pipeline.readers.sanitize import sanitize_json, sanitize_text
from embedctl.pipeline.readers.tally import CountingSource, Tally

__all__ = ["CountingSource", "ReaderOptions", "Tally", "open_source", "sanitize_json", "sanitize_text"]
