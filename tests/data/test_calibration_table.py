"""The calibration table of docs/calibration.md shows the records and nothing else."""

import json
from pathlib import Path
from typing import Any

HEAD = (
    "| run | task | recipe | start | iterations | rate | seed "
    "| top-1 | box AP | mask AP | mIoU | letters | note |"
)
METRICS = ("top1_pct", "box_ap", "mask_ap", "miou_pct", "things_miou_pct")


def line(record: dict[str, Any]) -> str:
    """One record as a table row; a metric that its task does not have stays empty."""
    metrics = [record.get(name, "") for name in METRICS]
    cells = [*(record[k] for k in ("run", "task", "recipe", "start", "iters")), f"{record['lr']:g}"]
    return "| " + " | ".join(map(str, [*cells, record["seed"], *metrics, record["note"]])) + " |"


def test_table_equals_the_records(repo_root: Path) -> None:
    records = json.loads((repo_root / "docs/data_calibration.json").read_text())
    lines = (repo_root / "docs/calibration.md").read_text().splitlines()
    start = lines.index(HEAD) + 2
    shown = lines[start : start + len(records)]
    assert shown == [line(record) for record in records]
    assert lines[start + len(records)] == ""
