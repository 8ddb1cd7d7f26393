"""Every encoding on pictures of every shape, from one patch on, in training and evaluation."""

from __future__ import annotations

import pytest

from relpos_mm.analysis.catalogue import CATALOGUE

from .tiny import picture, tiny

# One patch; smaller than a window; one side of it; nothing that a patch or a window divides.
SIZES = ((1, 1), (12, 9), (16, 60), (37, 53))


@pytest.mark.parametrize("small_map", ["pad", "shrink"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_any_picture_from_one_patch_on(name: str, small_map: str) -> None:
    """B010, B110: ``pretrain_img_size`` says where tables come from, and limits nothing."""
    model = tiny(
        depths=(1, 2),
        num_heads=(1, 2),
        out_indices=(0, 1),
        window_size=(4, 3),
        position=CATALOGUE[name],
        small_map=small_map,
    )
    for height, width in SIZES:
        for training in (True, False):
            first, second = model.train(training)(picture(height, width))
            rows, columns = -(-height // 4), -(-width // 4)
            assert first.shape == (1, 12, rows, columns)
            assert second.shape == (1, 24, -(-rows // 2), -(-columns // 2))
            assert first.isfinite().all()
            assert second.isfinite().all()
