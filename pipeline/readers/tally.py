"""What a source did besides yielding documents."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from embedctl.pipeline.document import Source

NOT_TEXT = "not text"
LINK_OUTSIDE = "links that leave the folder"
LINK_REPEATED = "links to what is read under its own name"


@dataclass(slots=True)
class Tally:
    """Counts of the last reading; complete when its iterator has ended.

    skipped: number of files left out, by reason. num_guessed: documents whose encoding is not certain.
    """

    skipped: Counter[str] = field(default_factory=Counter)
    num_guessed: int = 0

    def clear(self) -> None:
        self.skipped.clear()
        self.num_guessed = 0

    @property
    def num_skipped(self) -> int:
        return self.skipped.total()

    def sentences(self) -> list[str]:
        """What a person should hear at the end of a run; empty when there is nothing to say."""
        said = []
        if self.skipped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.skipped.items()))
            said.append(f"{_files(self.num_skipped)} skipped: {reasons}.")
        if self.num_guessed:
            said.append(f"{_files(self.num_guessed)} in a guessed encoding; set it if the text looks wrong.")
        return said


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


class CountingSource(Source, Protocol):
    """A source that says what it skipped."""

    @property
    def tally(self) -> Tally: ...
