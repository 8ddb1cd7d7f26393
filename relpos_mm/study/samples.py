"""The same pictures for every variant: truth in the first row, then each variant's boxes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

from .analysis import Group
from .figures import svg_of
from .spec import ROOT

_LEAST_SCORE = 0.3
_TRUTH, _FOUND = "#1a9850", "#f46d43"

Box = tuple[Sequence[float], str]


@dataclass(frozen=True)
class _Shown:
    """Pictures of the annotation file, with the boxes of each row by picture id."""

    files: Mapping[int, Path]
    rows: Mapping[str, Mapping[int, Sequence[Box]]]


def sample_figure(group: Group, pictures: int = 4) -> str | None:
    """Draw what one seed of every variant finds in the first pictures; None without predictions."""
    seeds = [set(records) for records in group.records.values()]
    common = sorted(set.intersection(*seeds)) if seeds else []
    if not common:
        return None
    folders = {variant: each[common[0]].path.parent for variant, each in group.records.items()}
    if not all((folder / "predictions.bbox.json").is_file() for folder in folders.values()):
        return None
    shown = _shown(folders, pictures)
    return None if shown is None else _draw(shown)


def _shown(folders: Mapping[str, Path], pictures: int) -> _Shown | None:
    result = json.loads((next(iter(folders.values())) / "result.json").read_text())
    config = result.get("config_content") or {}
    dataset = (config.get("val_dataloader") or {}).get("dataset") or {}
    root = ROOT / str(dataset.get("data_root", ""))
    annotations = root / str(dataset.get("ann_file", ""))
    if not annotations.is_file():
        return None
    truth = json.loads(annotations.read_text())
    names = {each["id"]: each["name"] for each in truth["categories"]}
    prefix = root / str((dataset.get("data_prefix") or {}).get("img", ""))
    first = truth["images"][:pictures]
    files = {each["id"]: prefix / each["file_name"] for each in first}
    if not all(file.is_file() for file in files.values()):
        return None
    rows = {"truth": _boxes(truth["annotations"], files, names)}
    for variant, folder in folders.items():
        found = json.loads((folder / "predictions.bbox.json").read_text())
        sure = [each for each in found if each["score"] >= _LEAST_SCORE]
        rows[variant] = _boxes(sure, files, names)
    return _Shown(files, rows)


def _boxes(
    entries: Sequence[Mapping[str, Any]], files: Mapping[int, Path], names: Mapping[int, str]
) -> dict[int, list[Box]]:
    boxes: dict[int, list[Box]] = {picture: [] for picture in files}
    for entry in entries:
        if entry["image_id"] in boxes:
            boxes[entry["image_id"]].append((entry["bbox"], names[entry["category_id"]]))
    return boxes


def _draw(shown: _Shown) -> str:
    rows, columns = len(shown.rows), len(shown.files)
    figure, grid = plt.subplots(rows, columns, figsize=(1.7 * columns, 1.7 * rows), squeeze=False)
    figure.patch.set_alpha(0)
    figure.subplots_adjust(wspace=0.04, hspace=0.04)
    for line, (row, boxes) in zip(grid, shown.rows.items(), strict=True):
        line[0].set_ylabel(row, color="#010203")
        for axes, (picture, file) in zip(line, shown.files.items(), strict=True):
            with Image.open(file) as image:
                axes.imshow(np.asarray(image.convert("RGB")))
            _frame(axes, boxes[picture], _TRUTH if row == "truth" else _FOUND)
    return svg_of(figure)


def _frame(axes: Axes, boxes: Sequence[Box], colour: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for (x, y, width, height), name in boxes:
        frame = Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1)
        axes.add_patch(frame)
        axes.text(x, y, name, color=colour, fontsize=7, va="bottom")
