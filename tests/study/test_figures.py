"""Colours of figures can be told from both pages, the light and the dark one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb

import relpos_mm.study
from relpos_mm.study.figures import _COLOURS, LINES

PAGE = Path(relpos_mm.study.__file__).parent / "templates" / "report.html"


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour)]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", [*LINES, *_COLOURS.values()])
def test_contrast_to_both_pages_is_three(colour: str) -> None:
    pages = re.findall(r"--page: (#\w+)", PAGE.read_text(encoding="utf-8"))
    assert len(pages) == 2
    for page in pages:
        low, high = sorted((luminance(page), luminance(colour)))
        assert (high + 0.05) / (low + 0.05) >= 3
