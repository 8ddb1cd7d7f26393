"""``tools/study.py``: plan, run, watch, finish by hand and report a study."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from relpos_mm.engine.errors import UserError

from .cell import Cell, waves
from .cell_run import finish, killed_by
from .configs import EMBEDDED, world_data
from .executors import pool_of
from .planning import plan
from .price import Price, counted, describe, price_of
from .runner import run_cells, unfinished
from .screen import Screen, overview
from .spec import ROOT, Study, knob_settings, read_study
from .state import FAILED, FINISHED, log_tail, state_of
from .stats import ALPHA, fewest_seeds, smallest_p


def main(argv: list[str] | None = None) -> int:
    """Run the tool; return 0, 1 when cells failed, 2 after one message when nothing was done."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except UserError as error:
        print(f"study: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("study: stopped; the same command goes on from here", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(run=run)
        return sub

    one = command("plan", _plan, "prove, count and price the cells")
    one.add_argument("study", help="study file, or its name in configs/studies/")
    one.add_argument("--print", action="store_true", help="one plain shell command per cell")
    one = command("run", _run, "run what is not finished, and report")
    one.add_argument("study", help="study file, or its name in configs/studies/")
    one.add_argument("--jobs", type=int, help="cells at a time (default: the study file's)")
    one.add_argument("--no-report", action="store_true", help="only run")
    one = command("status", _status, "show where each cell stands")
    one.add_argument("study", help="study file, or its name in configs/studies/")
    one = command("finish", _finish, "note cells as finished whose printed commands were run")
    one.add_argument("study", help="study file, or its name in configs/studies/")
    one.add_argument("cells", nargs="+", metavar="CELL", help="ids, as `plan --print` has them")
    one = command("report", _report, "write report.md and report.html")
    one.add_argument("study", nargs="+", help="study files; several become one report")
    one.add_argument(
        "--results",
        nargs="+",
        default=[],
        metavar="PATH",
        help="result files, or folders of them, copied from elsewhere",
    )
    one.add_argument("--out", help="folder (default: work_dirs/studies/STUDY)")
    one.add_argument("--no-bootstrap", action="store_true", help="leave the image variance out")
    return parser


def _priced(study: Study, cells: list[Cell]) -> tuple[Price, set[str]]:
    done = {cell.id for cell in cells if state_of(cell).word == FINISHED}
    return price_of(study, cells, done, study.executor.jobs), done


def power_lines(study: Study) -> list[str]:
    """Return what the number of seeds can and cannot decide, one line per question."""
    n, lines = len(study.seeds), []
    for question in study.questions:
        family = len(question.pairs)
        least, needed = smallest_p(n, family), fewest_seeds(family)
        about = f"{question.name}: {counted(n, 'seed')}, {counted(family, 'comparison')}"
        can = f"smallest possible p {least:.3g}"
        if n < needed:
            can += f", so everything will be undecided at {ALPHA:.0%}; {needed} seeds are needed"
        lines.append(f"{about}: {can}")
    return lines


def _plan(args: argparse.Namespace) -> int:
    study = read_study(args.study)
    cells = plan(study)
    if args.print:
        for command in data_commands(study):
            print(shlex.join(["python", *command]))
        for number, wave in enumerate(waves(cells), 1):
            commands = counted(len(wave), "command")
            print(f"# wave {number}: {commands}; the next wave needs these finished")
            for cell in wave:
                finish = shlex.join(["python", "tools/study.py", "finish", args.study, cell.id])
                print(" && ".join([*(step.line() for step in cell.steps), finish]))
        return 0
    price, done = _priced(study, cells)
    print(f"{study.title}: {counted(len(cells), 'cell')}, {len(done)} finished")
    print("proved: the cells of a task differ in `position` and seed only")
    for line in [*describe(study, price, done), *power_lines(study)]:
        print(f"  {line}")
    return 0


def _run(args: argparse.Namespace) -> int:
    study = read_study(args.study)
    if args.jobs is not None and args.jobs < 1:
        raise UserError(f"--jobs: {args.jobs} is not a positive number")
    executor = replace(study.executor, jobs=args.jobs or study.executor.jobs)
    study = replace(study, executor=executor)
    cells = plan(study)
    price, done = _priced(study, cells)
    for line in describe(study, price, done):
        print(line, flush=True)
    if len(done) < len(cells):
        make_data(study)
    study.folder.mkdir(parents=True, exist_ok=True)
    with Screen(cells, lambda done: price_of(study, cells, done, executor.jobs)) as screen:
        progress = run_cells(
            cells, study.folder, pool_of(study, executor), executor.jobs, screen.show
        )
    lost = unfinished(progress)
    for cell_id in lost:
        if cell_id not in progress.errors:
            print(f"\n{_end_of(study.folder / cell_id)}")
    for cell_id, error in progress.errors.items():
        if progress.states[cell_id].word != FINISHED:
            print(f"\n{cell_id} failed: {error}")
    if progress.blocked:
        print(f"\nwaiting for failed ones: {counted(len(progress.blocked), 'cell')}")
    if progress.note:
        print(progress.note)
    if not args.no_report and all(s.word != FINISHED for s in progress.states.values()):
        print("no cell is finished, so there is nothing to report")
    elif not args.no_report:
        _write_report([study], [], None, bootstrap=True, cells=cells)
    whole = all(state.word == FINISHED for state in progress.states.values())
    return 0 if whole else 1


def _end_of(folder: Path, step: str = "") -> str:
    """How a failed cell ended: in which step, by which signal, and the end of its log."""
    how = ", ".join(filter(None, [f"in {step}" if step else "", killed_by(folder)]))
    return f"{folder.name} failed {how}".rstrip() + f"; the end of its log:\n{log_tail(folder)}"


def data_commands(study: Study) -> list[list[str]]:
    """Return the commands, behind ``python``, that make the embedded data of a study."""
    if study.data is None:
        return []
    folders = {world_data(study, world): knobs for world, knobs in study.worlds.items()}
    if any(task.shared for task in study.tasks.values()):
        folders[EMBEDDED] = {}
    commands = []
    for folder, knobs in folders.items():
        chosen = ["--set", *knob_settings(knobs)] if knobs else []
        commands.append(["tools/data.py", "make-mini", "--out", folder.rstrip("/"), *chosen])
    return commands


def make_data(study: Study) -> None:
    """Make the embedded data that the study needs; what is there is kept.

    Raises:
        UserError: The data could not be made.
    """
    for command in data_commands(study):
        if subprocess.run([sys.executable, *command], cwd=ROOT).returncode:
            raise UserError(f"{command[3]} could not be made; the reason stands above")


def _status(args: argparse.Namespace) -> int:
    study = read_study(args.study)
    cells = plan(study)
    price, _ = _priced(study, cells)
    states = {cell.id: state_of(cell) for cell in cells}
    console = Console(highlight=False, soft_wrap=True)
    console.print(overview(cells, states, price))
    for cell in cells:
        if states[cell.id].word == FAILED:
            print(f"\n{_end_of(cell.path, states[cell.id].step)}")
    return 0


def _finish(args: argparse.Namespace) -> int:
    study = read_study(args.study)
    cells = {cell.id: cell for cell in plan(study)}
    if strange := sorted(set(args.cells) - cells.keys()):
        raise UserError(f"{study.name} has no cell {', '.join(strange)}; see `plan --print`")
    for cell_id in args.cells:
        finish(cells[cell_id])
    return 0


def _report(args: argparse.Namespace) -> int:
    studies = [read_study(path) for path in dict.fromkeys(args.study)]
    _write_report(studies, args.results, args.out, bootstrap=not args.no_bootstrap)
    return 0


def _write_report(
    studies: list[Study],
    results: list[str],
    out: str | None,
    bootstrap: bool,
    cells: list[Cell] | None = None,
) -> None:
    from .report import write_report  # matplotlib takes a second to import

    folder = Path(out) if out else studies[0].folder
    copied = [Path(path) for path in results]
    for path in write_report(studies, copied, folder, cells, bootstrap):
        print(f"written: {path}")
