"""What was tried in the trunk: both ways agree, and the page shows the record."""

from __future__ import annotations

import pytest

from relpos_mm.analysis.trunk_parts import PAGE, TRIALS, Trial, measured


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.part}: {trial.tried}")
def test_both_ways_agree_gradients_included(trial: Trial) -> None:
    for dtype in trial.dtypes:
        for step in trial.steps:
            row = measured(trial, dtype, step, rounds=1)
            assert row["ratio"] == row["ms"] / row["base_ms"] > 0


def test_the_page_shows_the_record_of_every_trial() -> None:
    rows = PAGE.rows()
    found = [tuple(row[key] for key in ("part", "tried", "step", "dtype")) for row in rows]
    assert found == [
        (trial.part, trial.tried, step, str(dtype).removeprefix("torch."))
        for trial in TRIALS
        for dtype in trial.dtypes
        for step in trial.steps
    ]
