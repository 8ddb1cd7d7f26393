"""The same pictures for every variant: truth first, then what one seed of each variant finds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .analysis import Group
from .records import Record
from .spec import ROOT
from .tiles import Tile, label_map, photo, tiles_svg

_LEAST_SCORE = 0.3
_TRUTH = "#2ecc71"
_PICTURES, _DISAGREED = 4, 8


def sample_figure(group: Group) -> tuple[str, str] | None:
    """Return a caption and a figure; None without evidence or pictures on this machine."""
    seeds = [set(records) for records in group.records.values()]
    common = sorted(set.intersection(*seeds)) if seeds else []
    for seed in common[:1]:
        records = {variant: each[seed] for variant, each in group.records.items()}
        for draw in (_boxes, _maps, _labels):
            if (found := draw(records)) is not None:
                return f"seed {seed}, {found[0]}", found[1]
    return None


def _boxes(records: Mapping[str, Record]) -> tuple[str, str] | None:
    files = {variant: record.evidence("bbox.json") for variant, record in records.items()}
    source = next(iter(records.values())).evidence("coco.json")
    if source is None or None in files.values():
        return None
    place = json.loads(source.read_text())
    annotations = ROOT / place["ann_file"]
    if not annotations.is_file():
        return None
    truth = json.loads(annotations.read_text())
    names = {each["id"]: each["name"] for each in truth["categories"]}
    tiles = _photos(
        {
            each["id"]: ROOT / place["images"] / each["file_name"]
            for each in truth["images"][:_PICTURES]
        }
    )
    if tiles is None:
        return None
    rows = {"truth": _framed(tiles, truth["annotations"], names)}
    for variant, file in files.items():
        found = json.loads(file.read_text())  # type: ignore[union-attr]
        sure = [each for each in found if each["score"] >= _LEAST_SCORE]
        rows[variant] = _framed(tiles, sure, names)
    caption = f"the first pictures: boxes of score {_LEAST_SCORE} and more"
    return caption, tiles_svg(rows, colours={"truth": _TRUTH})


def _framed(
    tiles: Mapping[int, Tile], entries: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> list[Tile]:
    boxes: dict[int, list[tuple[Sequence[float], str]]] = {picture: [] for picture in tiles}
    for entry in entries:
        if entry["image_id"] in boxes:
            boxes[entry["image_id"]].append((entry["bbox"], names[entry["category_id"]]))
    return [replace(tile, boxes=boxes[picture]) for picture, tile in tiles.items()]


def _maps(records: Mapping[str, Record]) -> tuple[str, str] | None:
    found = _same_pictures(records, "areas")
    if found is None:
        return None
    first = next(iter(found.values()))
    numbers = [n for n in range(_PICTURES) if all(f"guess_{n}" in one for one in found.values())]
    tiles = _photos({n: ROOT / str(first["pictures"][n]) for n in numbers})
    palette = first["palette"]
    if not tiles or not len(palette):
        return None
    rows = {
        "picture": list(tiles.values()),
        "truth": [label_map(first[f"truth_{n}"], palette) for n in numbers],
    }
    for variant, one in found.items():
        rows[variant] = [label_map(one[f"guess_{n}"], palette) for n in numbers]
    shown = np.unique(np.concatenate([first[f"truth_{n}"].ravel() for n in numbers]))
    legend = {
        str(first["classes"][label]): "#" + bytes(palette[label]).hex()
        for label in shown
        if label < len(palette)
    }
    return "the first pictures: label maps", tiles_svg(rows, legend=legend)


def _labels(records: Mapping[str, Record]) -> tuple[str, str] | None:
    found = _same_pictures(records, "guess")
    if found is None or len(found) < 2:
        return None
    first = next(iter(found.values()))
    guesses = np.stack([one["guess"] for one in found.values()])
    split = np.flatnonzero((guesses != guesses[0]).any(0))
    tiles = _photos({int(n): ROOT / str(first["pictures"][n]) for n in split[:_DISAGREED]})
    if not tiles:
        return None
    names = first["classes"]

    def told(n: int) -> list[str]:
        lines = {"truth": first["truth"][n]} | {v: one["guess"][n] for v, one in found.items()}
        return [f"{who}: {names[label] if len(names) else label}" for who, label in lines.items()]

    chosen = [replace(tile, text=told(n)) for n, tile in tiles.items()]
    half = -(-len(chosen) // 2)
    caption = (
        f"variants disagree on {len(split)} of {guesses.shape[1]} pictures; the first of those"
    )
    return caption, tiles_svg(
        {" ": chosen[:half], "  ": chosen[half:]} if half > 1 else {" ": chosen}
    )


def _same_pictures(records: Mapping[str, Record], needed: str) -> dict[str, dict[str, Any]] | None:
    """Read the arrays of all variants; None where one is missing or saw other pictures."""
    found = {}
    for variant, record in records.items():
        file = record.evidence("npz")
        if file is None:
            return None
        with np.load(file) as content:
            found[variant] = dict(content)
        if needed not in found[variant]:
            return None
    first = next(iter(found.values()))["pictures"]
    same = all(np.array_equal(one["pictures"], first) for one in found.values())
    return found if same else None


def _photos(files: Mapping[int, Path]) -> dict[int, Tile] | None:
    there = all(file.is_file() for file in files.values())
    return {key: photo(file) for key, file in files.items()} if there else None
