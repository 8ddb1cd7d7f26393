"""Keeps mmengine's logger alive over tests that replace the screen, and expected warnings quiet."""

from __future__ import annotations

import pytest
from mmengine.logging import MMLogger

from tests.quiet import stretched_tables_are_meant  # noqa: F401


@pytest.fixture(autouse=True, scope="session")
def logger_before_any_capture() -> None:
    """The logger keeps the stream of its first use, which must not be one that a test closes."""
    MMLogger.get_current_instance()
