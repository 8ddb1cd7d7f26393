"""How long the demo and some cells of the mini study take with either library for float32 products.

``python -m relpos_mm.analysis.gemm_cost`` measures again and renews docs/cpu_gemm.json and the
table in docs/cpu_gemm.md.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.cpu_gemm import DEFAULT, ONEDNN, VARIABLE
from relpos_mm.engine.errors import UserError
from relpos_mm.study.spec import ROOT, read_study
from relpos_mm.study.strict import read_yaml

from .measured_page import MeasuredPage
from .tables import markdown_table

STUDY = "sign_flip_mini"
ROUTES = (DEFAULT, ONEDNN)
# The whole study takes hours: its last two variants, which train at the same time, with one seed.
# What multiplies knows no encoding, so any two would do.
VARIANTS, SEEDS = 2, 1
DEMO, SLICE = "demo", "cells of the mini study"


def times_whole() -> float:
    """Cells of the whole study over those that are measured."""
    study = read_study(STUDY)
    return len(study.variants) * len(study.seeds) / (VARIANTS * SEEDS)


def cells() -> int:
    """Number of cells that are measured."""
    return VARIANTS * SEEDS * len(read_study(STUDY).tasks)


def measured(job: str, route: str, folder: Path) -> dict[str, Any]:
    """Run a job from its first step with a route, by the command that a user types.

    Args:
        job: :data:`DEMO` or :data:`SLICE`.
        route: A value of ``cpu_gemm``.
        folder: An empty one for what the job writes.

    Returns:
        Job, route, minutes on the clock, and minutes of all processes' CPU time.

    Raises:
        UserError: The job failed; what it wrote stays.
    """
    arguments = ["tools/demo.py", "--work-dir", str(folder)] if job == DEMO else _slice(folder)
    before, started = _cpu_seconds(), time.perf_counter()
    found = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, VARIABLE: route}
    )
    minutes = (time.perf_counter() - started) / 60
    if found.returncode:
        raise UserError(
            f"{job}, {route}: {' '.join(arguments)} failed; the reason stands above, logs are in "
            f"{folder} and {_results(folder)}"
        )
    return {
        "job": job,
        "route": route,
        "minutes": minutes,
        "cpu_minutes": (_cpu_seconds() - before) / 60,
    }


def _slice(folder: Path) -> list[str]:
    """The study's own file with fewer variants and seeds, under a name of its own."""
    study = read_study(STUDY)
    content = read_yaml(ROOT / f"configs/studies/{STUDY}.yaml")
    content |= {
        "variants": list(study.variants[-VARIANTS:]),
        "seeds": list(study.seeds[:SEEDS]),
        "control": study.variants[-1],
    }
    content.pop("questions", None)
    file = folder / f"{folder.name}.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return ["tools/study.py", "run", str(file), "--no-report"]


def _results(folder: Path) -> Path:
    """Where the study named after a folder keeps its cells."""
    return ROOT / "work_dirs" / "studies" / folder.name


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _rows() -> Iterator[dict[str, Any]]:
    if subprocess.run([sys.executable, "tools/data.py", "make-mini"], cwd=ROOT).returncode:
        raise UserError("the embedded data could not be made; the reason stands above")
    for job, route in product((DEMO, SLICE), ROUTES):
        folder = Path(tempfile.mkdtemp(prefix=f"{route}_"))
        yield measured(job, route, folder)
        shutil.rmtree(folder)
        shutil.rmtree(_results(folder), ignore_errors=True)  # only a study has it


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of the record as a table in Markdown, and what they say of the whole study."""
    found = {(row["job"], row["route"]): row for row in rows}
    header = ["job", "default BLAS, min", "oneDNN, min", "times as fast"]
    header += ["default BLAS, CPU min", "oneDNN, CPU min"]
    lines = []
    for job, name, times in (
        (DEMO, "`make demo`", 1.0),
        (SLICE, f"{cells()} cells of `make study`", 1.0),
        (SLICE, f"all {cells() * times_whole():.0f}, estimated", times_whole()),
    ):
        base, other = (found[job, route] for route in ROUTES)
        lines.append(
            [
                name,
                *(f"{row['minutes'] * times:.1f}" for row in (base, other)),
                f"{base['minutes'] / other['minutes']:.2f}",
                *(f"{row['cpu_minutes'] * times:.1f}" for row in (base, other)),
            ]
        )
    return markdown_table(header, lines)


PAGE = MeasuredPage("cpu_gemm", "gemm", table)


def main() -> None:
    """Measure all and renew the record and the page; under an hour on two idle cores."""
    PAGE.measure(_rows())


if __name__ == "__main__":
    sys.exit(run_tool(main))
