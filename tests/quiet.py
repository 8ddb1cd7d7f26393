"""A warning that tests of published baselines expect; `conftest.py` imports the fixture."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from relpos_mm.models.alignment import InterpolatedEmbeddingWarning


@pytest.fixture(autouse=True)
def stretched_tables_are_meant() -> Iterator[None]:
    """``tests/models/test_alignment.py`` tests when the warning comes; elsewhere it is noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InterpolatedEmbeddingWarning)
        yield
