"""Picture files: damaged ones are errors, odd ones are read by a documented rule and noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from relpos_mm.data.check.coco import check_sized
from relpos_mm.data.check.pictures import check_picture
from relpos_mm.data.check.sample import is_cut
from relpos_mm.data.reading import read_raw_grid

from .conftest import only, rules

RANDOM = np.random.default_rng(0).integers(0, 256, (20, 40, 4), dtype=np.uint8)
COLOUR, GREY = RANDOM[..., :3], RANDOM[..., 0]


def save(path: Path, mode: str, **options: object) -> Path:
    pictures = {
        "RGB": Image.fromarray(COLOUR),
        "L": Image.fromarray(GREY),
        "LA": Image.fromarray(RANDOM[..., :2]),
        "RGBA": Image.fromarray(RANDOM),
        "CMYK": Image.fromarray(RANDOM, "RGBA").convert("RGB").convert("CMYK"),
        "I;16": Image.fromarray(GREY.astype(np.uint16) * 257),
        "1": Image.fromarray(GREY > 99),
        "P": Image.fromarray(COLOUR).convert("P"),
    }
    pictures[mode].save(path, **options)
    return path


def turned(path: Path) -> Path:
    """A picture of 40 x 20 px that says it is to be shown as 20 x 40."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return save(path, "RGB", exif=exif)


@pytest.mark.parametrize("name", ["x.jpg", "x.png"])
def test_cut_empty_and_foreign_files(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / name, "RGB")
    assert check_picture(path) == ((40, 20), [])
    assert not is_cut(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    only(check_picture(path)[1], "picture-truncated")
    assert is_cut(path)
    path.write_bytes(b"")
    assert "0 bytes" in only(check_picture(path)[1], "picture-empty").value
    path.write_bytes(b"<!DOCTYPE html><html>")
    assert "a web page" in only(check_picture(path)[1], "picture-unreadable").value
    path.write_bytes(whole + b"camera" * 20_000)
    assert not is_cut(path), "cameras write more behind the picture"
    path.unlink()
    only(check_picture(path)[1], "picture-missing")


def test_b077_turned_picture_is_noted_and_size_mismatch_is_an_error(tmp_path: Path) -> None:
    path = turned(tmp_path / "x.jpg")
    findings = check_sized((path, (40, 20)))
    assert (rules(findings), rules(findings, "note")) == ([], ["picture-exif"])
    found = only(check_sized((path, (20, 40))), "picture-size")
    assert "40 x 20 px, its annotations say 20 x 40" in found.value
    assert "EXIF" in found.remedy


def test_b077_every_loader_reads_the_stored_grid(tmp_path: Path) -> None:
    from mmcv.transforms import LoadImageFromFile

    path = turned(tmp_path / "x.jpg")
    dataset = dict(type="RepeatDataset", dataset=dict(pipeline=[dict(type="LoadImageFromFile")]))
    cfg = Config(
        dict(
            train_dataloader=dict(dataset=dataset),
            tta_pipeline=[dict(type="mmdet.LoadImageFromFile", color_type="color")],
        )
    )
    assert read_raw_grid(cfg) == 2
    for step in (cfg.train_dataloader.dataset.dataset.pipeline[0], cfg.tta_pipeline[0]):
        for backend in ("cv2", "pillow"):
            read = LoadImageFromFile(color_type=step.color_type, imdecode_backend=backend)
            assert read({"img_path": str(path)})["img"].shape == (20, 40, 3)
    assert read_raw_grid(cfg) == 0


NOTES = {"RGBA": "picture-mode", "LA": "picture-mode", "CMYK": "picture-mode"}
NOTES["I;16"] = "picture-mode"


@pytest.mark.parametrize("mode", ["RGB", "L", "LA", "RGBA", "CMYK", "I;16", "1", "P"])
def test_b079_every_mode_becomes_three_channels_of_8_bits(tmp_path: Path, mode: str) -> None:
    from mmcv.transforms import LoadImageFromFile

    path = save(tmp_path / ("x.jpg" if mode == "CMYK" else "x.png"), mode)
    size, findings = check_picture(path)
    assert size == (40, 20)
    assert [finding.rule for finding in findings] == ([NOTES[mode]] if mode in NOTES else [])
    picture = LoadImageFromFile(color_type="color_ignore_orientation")({"img_path": path})["img"]
    assert (picture.shape, picture.dtype) == ((20, 40, 3), np.uint8)
    if mode in ("L", "LA", "I;16"):
        assert (picture == GREY[..., None]).all(), "grey is repeated, 16 bits keep their upper 8"
    elif mode == "RGBA":
        assert (picture[..., ::-1] == COLOUR).all(), "transparency is dropped"


def test_b079_animation_and_wrong_suffix_are_noted(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((20, 40), value, np.uint8)) for value in (0, 255)]
    path = tmp_path / "x.png"
    frames[0].save(path, "GIF", save_all=True, append_images=frames[1:])
    findings = check_picture(path)[1]
    assert rules(findings, "note") == ["picture-suffix", "picture-frames"]
    assert "called .png but holds GIF" in findings[0].value
