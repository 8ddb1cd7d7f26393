"""Small valid material that the tests then spoil in one place each."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from relpos_mm.data.check.finding import Finding

CONTENT: dict[str, Any] = {
    "images": [
        {"id": 1, "file_name": "a.jpg", "width": 40, "height": 20},
        {"id": 2, "file_name": "b.jpg", "width": 40, "height": 20},
    ],
    "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
    "annotations": [
        {
            "id": 11,
            "image_id": 1,
            "category_id": 3,
            "bbox": [2, 2, 10, 10],
            "area": 100,
            "iscrowd": 0,
            "segmentation": [[2, 2, 12, 2, 12, 12, 2, 12]],
        },
        {
            "id": 12,
            "image_id": 1,
            "category_id": 7,
            "bbox": [20, 5, 10, 10],
            "area": 45,
            "iscrowd": 0,
            "segmentation": [[20, 5, 30, 5, 30, 15]],
        },
    ],
}


@pytest.fixture
def content() -> dict[str, Any]:
    """A valid annotation file of two pictures, the second one empty."""
    return copy.deepcopy(CONTENT)


@pytest.fixture
def write_coco(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a COCO set: `val.json` and the two pictures in `pictures/`."""

    def write(content: Any) -> Path:
        folder = tmp_path / "pictures"
        folder.mkdir(exist_ok=True)
        for name in ("a.jpg", "b.jpg"):
            Image.fromarray(np.full((20, 40, 3), 90, np.uint8)).save(folder / name)
        path = tmp_path / "val.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def rules(findings: list[Finding], severity: str = "error") -> list[str]:
    """The rules that were broken."""
    return [finding.rule for finding in findings if finding.severity == severity]


def only(findings: list[Finding], rule: str) -> Finding:
    """The one error there is, which must be of this rule, with a file and a remedy."""
    assert rules(findings) == [rule], [str(finding) for finding in findings]
    found = next(finding for finding in findings if finding.is_error)
    assert found.file
    assert found.remedy
    return found
