"""The cost of compiling the backbone: what a row says, and that the page shows the record."""

from __future__ import annotations

import pytest

from relpos_mm.analysis.benchmark import STEPS
from relpos_mm.analysis.compile_cost import PAGE, SIZES, measured
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin

SMALL = {"embed_dims": 8, "depths": (1,), "num_heads": (1,), "out_indices": (0,)}


@pytest.mark.parametrize("step", STEPS)
def test_both_sides_are_compared_and_timed(step: str) -> None:
    rows = list(measured(step, ["1x32x32", "1x40x64"], 1, SMALL, backend="eager"))
    assert [row["size"] for row in rows] == ["1x32x32", "1x40x64"]
    assert all(row["ratio"] == row["ms"] / row["eager_ms"] > 0 for row in rows)
    assert all(row["error"] < 1e-5 for row in rows)


def test_a_wrong_graph_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_wrongly(self: RelPosSwin, **options: object) -> None:
        self.norm0.weight.data *= 1.01

    monkeypatch.setattr(RelPosSwin, "compile", compile_wrongly)
    with pytest.raises(UserError, match="1x32x32, inference: the result differs"):
        list(measured("inference", ["1x32x32"], 1, SMALL))


def test_the_page_shows_the_record() -> None:
    assert [(row["step"], row["size"]) for row in PAGE.rows()] == [
        (s, z) for s in STEPS for z in SIZES
    ]
