"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed


@pytest.fixture
def single_process_group(tmp_path: Path) -> Iterator[None]:
    """A gloo group of this process alone, which DDP needs to be built."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()
