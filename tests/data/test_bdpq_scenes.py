"""What the pictures show: the factors of docs/data.md, and truth that fits the pixels."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO

from relpos_mm.data.bdpq import Knobs
from relpos_mm.data.bdpq.atlas import VAL_FACES, atlas, faces, glyph
from relpos_mm.data.bdpq.ground import draw_ground
from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES
from relpos_mm.data.bdpq.scene import Scene, compose_portrait, compose_scene, scene_splits
from relpos_mm.data.bdpq.stream import Stream

SPLITS = tuple(scene_splits(Knobs()))


def scenes(split: str, count: int = 12, knobs: Knobs | None = None) -> list[Scene]:
    knobs = knobs or Knobs()
    return [compose_scene(knobs, scene_splits(knobs)[split], 3, index) for index in range(count)]


def box(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a mask, the last two not included."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


@pytest.mark.parametrize("split", SPLITS)
def test_coco_file_is_valid(tiny_set: Path, split: str) -> None:
    coco = COCO(str(tiny_set / f"ann/{split}.json"))
    assert [c["name"] for c in coco.loadCats(coco.getCatIds())] == list(LETTERS)
    assert sorted(coco.getImgIds()) == list(range(1, len(coco.imgs) + 1))
    assert sorted(coco.getAnnIds()) == list(range(1, len(coco.anns) + 1))
    raw = json.loads((tiny_set / f"ann/{split}.json").read_text())
    assert len(raw["annotations"]) == len(coco.anns) > 0, "ids repeat"
    for annotation in coco.anns.values():
        mask = coco.annToMask(annotation)
        left, top, right, bottom = box(mask)
        assert annotation["bbox"] == [left, top, right - left, bottom - top]
        assert annotation["area"] == mask.sum() > 0
        assert annotation["iscrowd"] == 0


@pytest.mark.parametrize("split", SPLITS)
def test_masks_are_the_visible_part(split: str) -> None:
    for scene in scenes(split):
        masks = np.array([mask for _, mask in scene.letters])
        assert masks.sum(0).max() <= 1, "a pixel belongs to the uppermost letter only"
        is_letter = scene.labels >= SEG_CLASSES.index(LETTERS[0])
        assert np.array_equal(is_letter, masks.any(0))
        for letter, mask in scene.letters:
            assert set(scene.labels[mask]) == {SEG_CLASSES.index(LETTERS[letter])}


def test_no_letter_is_mostly_covered() -> None:
    """Covered letters exist in a crowd, and each keeps at least half of its ink."""
    crowd = Knobs(letters=(9, 9), slant_pct=0)
    hidden_shares = []
    for scene in scenes("train", 6, crowd):
        for number, (_, mask) in enumerate(scene.letters):
            left, top, right, bottom = box(mask)
            others = np.zeros_like(mask)
            for _, later in scene.letters[number + 1 :]:
                others |= later
            within = others[top:bottom, left:right].sum()
            hidden_shares.append(within / (mask.sum() + within))
    assert max(hidden_shares) > 0.1
    sparse = [len(scene.letters) for scene in scenes("train", 12)]
    low, high = Knobs().letters
    assert low <= min(sparse)
    assert max(sparse) <= high


@pytest.mark.parametrize("split", SPLITS)
def test_letters_lie_where_the_split_says(split: str) -> None:
    for scene in scenes(split):
        width = scene.picture.shape[1]
        for _, mask in scene.letters:
            left, _, right, _ = box(mask)
            if split == "val_shift":
                assert left >= width - width * 45 // 100
            else:
                assert right <= width * 60 // 100


def test_zoom_enlarges_and_large_does_not() -> None:
    def mean_height(split: str) -> float:
        boxes = [box(mask) for scene in scenes(split, 40) for _, mask in scene.letters]
        return float(np.mean([bottom - top for _, top, _, bottom in boxes]))

    assert mean_height("val_zoom") > 1.3 * mean_height("val")
    assert mean_height("val_large") == pytest.approx(mean_height("val"), rel=0.15)


def test_portraits_hold_one_letter_near_the_centre() -> None:
    knobs = Knobs()
    centres = []
    for index in range(64):
        scene = compose_portrait(knobs, val=False, seed=0, index=index)
        assert scene.picture.shape == (knobs.cls_px, knobs.cls_px, 3)
        ((letter, mask),) = scene.letters
        assert letter == index % len(LETTERS)
        left, top, right, bottom = box(mask)
        centres.append(((left + right) / 2, (top + bottom) / 2))
    middle = knobs.cls_px / 2
    assert np.abs(np.mean(centres, 0) - middle).max() < 1.5
    assert np.std(centres, 0).max() < knobs.centre_sigma_px + 1


def test_faces_of_training_and_validation_are_apart() -> None:
    assert not set(faces(val=True)) & set(faces(val=False))
    assert {atlas()["faces"][i] for i in faces(val=True)} == set(VAL_FACES)
    assert len(faces(val=False)) == 16


def test_chiral_letters_are_near_mirror_images() -> None:
    """b d p q are told apart by the arrangement of strokes alone, or the data set has no point."""
    sans = atlas()["faces"].tolist().index("DejaVuSans")
    b, d, p, q = (glyph(sans, letter, 40).astype(int) for letter in "bdpq")
    for one, other in ((b, d[:, ::-1]), (b, p[::-1]), (d, q[::-1])):
        height, width = (min(a, c) for a, c in zip(one.shape, other.shape, strict=True))
        same = np.abs(one[:height, :width] - other[:height, :width])
        assert same.mean() < 0.2 * one.mean()
    assert np.abs(b - d[: b.shape[0], : b.shape[1]]).mean() > 0.5 * b.mean()


def test_resizing_keeps_the_amount_of_ink() -> None:
    cell = atlas()["glyphs"][0, 0]
    for size in (16, 40, 64, 90):
        ink = glyph(0, "b", size).sum() / size**2
        assert ink == pytest.approx(cell.sum() / cell.size, rel=0.05)


@pytest.mark.parametrize(("layout_pct", "low", "high"), [(100, 1.0, 1.0), (0, 0.35, 0.65)])
def test_the_row_decides_weave_labels_as_strongly_as_told(
    layout_pct: int, low: float, high: float
) -> None:
    above, below = SEG_CLASSES.index("weave-above"), SEG_CLASSES.index("weave-below")
    agree = total = 0
    for index in range(150):
        _, labels = draw_ground(Stream(index), 32, 1, contrast_pct=60, layout_pct=layout_pct)
        upper, lower = labels[:16], labels[16:]
        agree += (upper == above).sum() + (lower == below).sum()
        total += np.isin(labels, (above, below)).sum()
    assert low <= agree / total <= high


def test_layout_strength_changes_labels_and_not_pictures() -> None:
    free, bound = Knobs(), replace(Knobs(), layout_pct=100)
    pairs = list(zip(scenes("train", 12, free), scenes("train", 12, bound), strict=True))
    assert all(np.array_equal(one.picture, other.picture) for one, other in pairs)
    assert any(not np.array_equal(one.labels, other.labels) for one, other in pairs)


def test_stream_is_the_documented_one() -> None:
    """PCG64 seeded by SeedSequence, upper 32 bits: any machine can repeat it."""
    stream, bits = Stream(7, 1), np.random.PCG64(np.random.SeedSequence((7, 1)))
    raw = [int(bits.random_raw()) >> 32 for _ in range(3)]
    assert [stream.below(1000) for _ in range(3)] == [r * 1000 >> 32 for r in raw]
    assert {Stream(i).between(2, 4) for i in range(40)} == {2, 3, 4}
    assert set(Stream(1).grid((50,), 3)) == {0, 1, 2}
