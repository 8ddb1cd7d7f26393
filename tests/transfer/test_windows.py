"""Tables of windows that are not square are never taken for those of another window."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relpos_mm.engine import UserError
from relpos_mm.engine.weights import WeightSources
from relpos_mm.transfer.windows import misread, possible_windows, window_doubt

from .helpers import build
from .test_agreement import Whole, trained
from .test_fit import dense, run

RELATIVE: list[dict[str, Any]] = [{"type": "RelativeBias"}]


def test_rows_and_windows() -> None:
    assert possible_windows(91) == [(4, 7), (7, 4)]
    assert possible_windows(169) == [(7, 7)]
    assert window_doubt(169, (7, 7)) == window_doubt(81, (5, 5)) == window_doubt(169, (4, 7)) == ""
    assert window_doubt(91, (7, 4)) == "91 rows are those of 4x7 or 7x4"
    assert "2x14 or 5x5" in window_doubt(81, (4, 7))
    assert "no window" in window_doubt(90, (7, 7))
    assert misread(49, (7, 4), (7, 7)) == misread(169, (7, 4), (7, 7)) == ""
    assert "its window is 2x14" in misread(81, (5, 5), (2, 14))


def test_a_file_without_a_config_needs_its_window_named() -> None:
    file = build(window_size=(4, 7), out_indices=(1,)).state_dict()
    report, _ = run(file, dense(window_size=(7, 4)))
    assert "91 rows are those of 4x7 or 7x4; name the file's window (--window" in report.problems()
    report, _ = run(file, dense(window_size=(7, 4)), window=(4, 7))
    assert len(report.of("resized")) == 3
    square = build(window_size=(7, 7), out_indices=(1,)).state_dict()
    report, _ = run(square, dense(window_size=(4, 7)))
    assert report.problems() == ""


@pytest.mark.parametrize("ours", [(7, 4), (4, 4)])
def test_other_paths_refuse_what_they_would_misread(ours: tuple[int, int]) -> None:
    stated = trained(RELATIVE, window_size=(4, 7))
    silent = {"state_dict": stated["state_dict"]}
    for content in (stated, silent):
        with pytest.raises(UserError, match=r"(4x7|91 rows).*tools/transfer\.py.*--window"):
            WeightSources(Whole(RELATIVE, window_size=ours)).add_checkpoint("x.pth", content, True)
    WeightSources(Whole(RELATIVE, window_size=(4, 7))).add_checkpoint("x.pth", stated, True)
    square = {"state_dict": Whole(RELATIVE, window_size=(7, 7)).state_dict()}
    model = Whole(RELATIVE, window_size=ours)
    WeightSources(model).add_checkpoint("x.pth", square, True)
    model.load_state_dict(square["state_dict"])
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
