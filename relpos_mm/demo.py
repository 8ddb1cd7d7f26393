"""The demo: a dense model from scratch, and where its backbone is ours a pre-trained one, too."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from relpos_mm.engine.errors import UserError
from relpos_mm.pictures import contact_sheet
from relpos_mm.readme import read_result

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class DenseTask:
    """What differs between the dense tasks of the demo.

    Attributes:
        config: First part of the config's name.
        title: Name of the model.
        metrics: What the report shows.
        variant: Encoding where none is asked for.
        network: Second part of the config's name.
        pretrained: Whether a classifier of that network exists to start from.
    """

    config: str
    title: str
    metrics: tuple[str, ...]
    variant: str = "relonly"
    network: str = "swin_t"
    pretrained: bool = True


DENSE = {
    "detection": DenseTask("cascade", "Cascade Mask R-CNN", ("box_ap", "mask_ap")),
    "segmentation": DenseTask("upernet", "UperNet", ("miou_pct", "things_miou_pct")),
    "detr": DenseTask("detr", "DETR", ("box_ap",), "irpe_k", "r50", pretrained=False),
}


class Demo:
    """Runs the tools in order and shows their results.

    Args:
        task: A key of :data:`DENSE`.
        variant: Slug of the position encoding, part of the config names; the task's by default.
        work_dir: Where all runs, logs and pictures go.
        seed: Seed of every training.
        parallel: Train from scratch beside the chain of pre-training, one thread each.
        cfg_options: ``key=value`` overrides of every training.
    """

    def __init__(
        self,
        task: str,
        variant: str | None,
        work_dir: str | Path,
        seed: int = 0,
        parallel: bool = True,
        cfg_options: Sequence[str] = (),
    ) -> None:
        self.dense = DENSE[task]
        self.variant = variant or self.dense.variant
        self.work_dir = Path(work_dir).resolve()
        self.seed = seed
        self.parallel = parallel
        self.cfg_options = tuple(cfg_options)
        self.console = Console(highlight=False, soft_wrap=True)
        self._running: list[subprocess.Popen[str]] = []
        self._stopped = False

    def run(self) -> None:
        """Do everything; a few minutes to twenty on two idle cores.

        Raises:
            UserError: There is no such variant, the folder cannot be written, or a step failed;
                the message names the step and its log.
        """
        started = time.monotonic()
        self._check()
        self._tool("data", "data.py", "make-mini")
        chains: list[Callable[[], None]] = [self._scratch]
        if self.dense.pretrained:
            chains.insert(0, self._pretrained)
        if self.parallel and (os.cpu_count() or 1) > 1:
            with ThreadPoolExecutor(len(chains)) as pool:
                for done in as_completed([pool.submit(chain) for chain in chains]):
                    if error := done.exception():
                        self._stop()
                        raise error
        else:
            for chain in chains:
                chain()
        pictures = self._draw()
        self._report(pictures, time.monotonic() - started)

    def _check(self) -> None:
        """Refuse what would only fail after minutes."""
        families = [self.dense.config, *(["cls"] if self.dense.pretrained else [])]
        for family in families:
            if not (ROOT / self._config(family)).is_file():
                start = f"{family}_{self.dense.network}_"
                known = sorted(
                    path.stem.removeprefix(start)
                    for path in (ROOT / "configs/mini").glob(f"{start}*.py")
                )
                raise UserError(
                    f"there is no {self._config(family)}; variants are {', '.join(known)}"
                )
        try:
            (self.work_dir / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.work_dir}: cannot be written ({error.strerror}); give another --work-dir"
            ) from error

    def _stop(self) -> None:
        """End what still runs: without its counterpart the comparison is void."""
        self._stopped = True
        for process in self._running:
            process.terminate()

    def _config(self, family: str) -> str:
        return f"configs/mini/{family}_{self.dense.network}_{self.variant}.py"

    def _pretrained(self) -> None:
        classifier = self.work_dir / "classifier"
        weights = self.work_dir / f"classifier_to_{self.dense.config}.pth"
        dense = self._config(self.dense.config)
        self._train("classifier", self._config("cls"), classifier)
        source = _last_checkpoint(classifier)
        self._tool("transfer", "transfer.py", source, weights, "--config", dense)
        run_dir = self.work_dir / self.dense.config
        self._train(self.dense.config, dense, run_dir, f"load_from={weights}")

    def _scratch(self) -> None:
        run_dir = list(self.runs().values())[-1]
        self._train(run_dir.name, self._config(self.dense.config), run_dir)

    def _train(self, step: str, config: str, work_dir: Path, *options: str) -> None:
        options = (f"randomness.seed={self.seed}", *options, *self.cfg_options)
        self._tool(step, "train.py", config, "--work-dir", work_dir, "--cfg-options", *options)

    def _draw(self) -> Path:
        """Test the pre-trained model once more, drawing prediction beside truth."""
        run_dir = self.work_dir / self.dense.config
        config, shown = self._config(self.dense.config), run_dir / "pictures"
        shutil.rmtree(shown, ignore_errors=True)  # of an earlier demo, maybe with other data
        arguments = (config, _last_checkpoint(run_dir), "--work-dir", run_dir / "test")
        self._tool("draw", "test.py", *arguments, "--show-dir", shown)
        sheet = self.work_dir / f"{self.dense.config}.png"
        contact_sheet(sorted(shown.rglob("*.png"))[:6], sheet, columns=2)
        return sheet

    def _tool(self, step: str, script: str, *arguments: str | Path) -> None:
        """Run one of the tools, its output in ``logs/`` and its progress on the screen."""
        if self._stopped:
            raise UserError(f"step '{step}' was not started, another one failed")
        command = [sys.executable, str(Path("tools") / script), *map(str, arguments)]
        self.console.print(f"[bold]{step}[/bold]: {shlex.join(['python', *command[1:]])}")
        log = self.work_dir / "logs" / f"{step}.log"
        threads = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with (
            log.open("w") as file,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **threads},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
        ):
            self._running.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                if shown := _progress(line):
                    self.console.print(f"  {step}: {shown}", markup=False)
        if process.returncode:
            tail = "".join(log.read_text().splitlines(keepends=True)[-20:])
            raise UserError(f"step '{step}' failed, its log is {log} and ends with\n{tail}")

    def runs(self) -> dict[str, Path]:
        """The run directories of the trainings, in the order of the report."""
        names = [self.dense.config]
        if self.dense.pretrained:
            names = ["classifier", *names, f"{self.dense.config}_scratch"]
        return {name: self.work_dir / name for name in names}

    def _report(self, sheet: Path, seconds: float) -> None:
        table = Table("run", "metric", "value", title=f"{self.dense.title}, {self.variant}")
        for name, run_dir in self.runs().items():
            found = read_result(run_dir)["metrics"]
            for metric in ("top1_pct",) if name == "classifier" else self.dense.metrics:
                table.add_row(name, metric, f"{found[metric]:.3f}")
        self.console.print(table)
        self.console.print(f"finished in {seconds / 60:.1f} min; everything is in {self.work_dir}")
        self.console.print(f"prediction beside truth: {sheet}")


def _last_checkpoint(run_dir: Path) -> Path:
    note = run_dir / "last_checkpoint"
    if not note.is_file():
        raise UserError(f"{note} is missing: the run saved no checkpoint")
    return Path(note.read_text().strip())


def _progress(line: str) -> str | None:
    """The part of a log line that a person watching wants to see, or None."""
    found = re.search(r"(?:Epoch|Iter)\((train|val|test)\)\s*((?:\[[^]]*\])+)(.*)", line)
    if not found:
        return None
    phase, step, rest = found.groups()
    if phase == "train":
        wanted = re.findall(r"\b(?:eta|loss): \S+", rest)
    else:  # the metrics stand in the last line of a validation, timings in all
        wanted = re.findall(r"\S*(?:top1|mAP|mIoU): \S+", rest)
        if not wanted:
            return None
    return f"{phase} {step.replace(' ', '')}  {'  '.join(wanted)}"
