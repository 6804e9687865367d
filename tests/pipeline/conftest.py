"""A rehearsal in an empty home, whose store process ends with the test."""

from pathlib import Path

import pytest
from rehearsal import Rehearsal


@pytest.fixture
def rehearsal(home: Path) -> Rehearsal:
    return Rehearsal(home)
