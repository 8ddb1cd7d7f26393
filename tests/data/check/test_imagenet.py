"""ImageNet's layout: class folders, the flat validation folder, the order of its list."""

from __future__ import annotations

from pathlib import Path

import pytest

from relpos_mm.data.check.imagenet import check_imagenet
from relpos_mm.data.check.imagenet_val import check_val_list
from relpos_mm.data.check.outcome import Options
from relpos_mm.data.trees import write_imagenet_tree

from .conftest import only, rules

ONE = Options(mini=True, workers=1)
NAMES = ("n01", "n02", "n03", "n04")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Four classes, and a flat validation folder with a list whose order is proved."""
    return write_imagenet_tree(tmp_path / "imagenet", num_classes=4, num_val=4)


def test_sound_tree_passes_and_is_summed_up(tree: Path) -> None:
    outcome = check_imagenet(tree, ONE, num_classes=4)
    assert outcome.findings == []
    assert outcome.counts["class folders in train"] == 4
    assert outcome.counts["pictures of val decoded"] == 4
    assert rules(check_imagenet(tree, Options(workers=1)).findings) == [
        "class-folders",
        *["count"] * 2,
    ]


def test_b081_list_in_another_order_than_the_folders(tree: Path) -> None:
    lines = (tree / "meta/synsets.txt").read_text().splitlines()
    (tree / "meta/synsets.txt").write_text("\n".join(lines[i] for i in (2, 0, 3, 1)))
    found = only(check_imagenet(tree, ONE).findings, "val-order")
    assert "number 0 is n00000003 there and n00000001 here" in found.value


def test_b081_numbers_alone_prove_no_order(tree: Path) -> None:
    (tree / "meta/synsets.txt").unlink()
    found = only(check_imagenet(tree, ONE).findings, "val-order-unproved")
    assert "synsets.txt" in found.remedy


@pytest.mark.parametrize("shift", [0, 1])
def test_b081_development_kit_order_of_the_published_list(tmp_path: Path, shift: int) -> None:
    place, path = tmp_path / "val", tmp_path / "meta/val.txt"
    place.mkdir()
    path.parent.mkdir()
    classes = [f"n{i:08d}" for i in range(1000)]

    def findings(numbers: tuple[int, ...]) -> list[str]:
        names = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 7)]
        path.write_text("".join(f"{n} {k}\n" for n, k in zip(names, numbers, strict=True)))
        return rules(check_val_list(tmp_path, path, classes)[1])

    assert findings((65, 970, 230, 809, 516, 57)) == []
    devkit = (490, 361, 171, 822, 297, 482)
    assert findings(tuple(number - shift for number in devkit)) == ["val-order"]


def test_b081_listed_names_with_folders_prove_the_order(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    path = tmp_path / "val.txt"
    path.write_text("n01/a.JPEG 0\nn03/b.JPEG 2\n")
    assert check_val_list(tmp_path, path, NAMES)[1] == []
    path.write_text("n01/a.JPEG 3\nn03/b.JPEG 2\n")
    found = only(check_val_list(tmp_path, path, NAMES)[1], "val-order")
    assert "n01/a.JPEG 3 (is 0)" in found.value


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "val-list"),
        ("a.JPEG\n", "val-list"),
        ("a.JPEG -1\n", "val-list"),
        ("a.JPEG " + 5000 * "9", "val-list"),
    ],
)
def test_unreadable_list(tree: Path, text: str, rule: str) -> None:
    (tree / "meta/val.txt").write_text(text)
    only(check_imagenet(tree, ONE).findings, rule)


def test_a_limit_hides_no_missing_picture(tree: Path) -> None:
    (last := sorted((tree / "val").iterdir())[-1]).unlink()
    outcome = check_imagenet(tree, Options(mini=True, limit=1, workers=1))
    assert only(outcome.findings, "picture-missing").file == str(last)


def test_lines_of_spaces_name_no_class(tree: Path) -> None:
    with (tree / "meta/synsets.txt").open("a") as file:
        file.write(" \n")
    assert check_imagenet(tree, ONE).findings == []


def test_numbers_out_of_range_and_unlisted_pictures(tree: Path) -> None:
    lines = (tree / "meta/val.txt").read_text().splitlines()
    (tree / "meta/val.txt").write_text(lines[0].rsplit(" ", 1)[0] + " 4\n" + lines[1] + "\n")
    findings = check_imagenet(tree, ONE).findings
    assert rules(findings) == ["val-range", "val-unlisted"]
    assert "4 classes are 0 to 3" in findings[0].value


def test_b083_folders_against_num_classes(tree: Path) -> None:
    found = only(check_imagenet(tree, ONE, num_classes=10).findings, "class-folders")
    assert "4 class folders, the model has 10 classes" in found.value


def test_b083_flat_folders(tree: Path) -> None:
    (tree / "meta/val.txt").unlink()
    found = only(check_imagenet(tree, ONE).findings, "val-flat")
    assert "4 pictures lie flat and there is no val.txt" in found.value
    picture = next((tree / "train").rglob("*.JPEG"))
    flat = tree / "flat"
    (flat / "train").mkdir(parents=True)
    (flat / "val").mkdir()
    (flat / "train/x.JPEG").write_bytes(picture.read_bytes())
    findings = check_imagenet(flat, ONE).findings
    assert rules(findings) == ["class-folders", "val-flat"]
    assert "no class folder; 1 pictures lie loose" in findings[0].value


def test_damaged_picture_and_empty_class_are_named(tree: Path) -> None:
    first, second = sorted((tree / "train").rglob("*.JPEG"))[:2]
    first.write_bytes(first.read_bytes()[:300])
    second.unlink()
    findings = check_imagenet(tree, ONE).findings
    assert rules(findings) == ["class-empty", "picture-truncated"]
    assert findings[1].file == str(first)


def test_hidden_files_are_left_alone_as_the_reader_does(tree: Path) -> None:
    for place in ("train/n00000001", "val"):
        (tree / place / "._copy.JPEG").write_bytes(b"no picture")
    (tree / "meta/val.txt").rename(tree / "meta/list.txt")
    for number, picture in enumerate(sorted((tree / "val").glob("ILSVRC*")), 1):
        folder = tree / f"val/n0000000{number}"
        folder.mkdir()
        picture.rename(folder / picture.name)
    outcome = check_imagenet(tree, ONE, num_classes=4)
    assert outcome.findings == []
    assert outcome.counts["pictures in train"] == outcome.counts["pictures in val"] == 4
