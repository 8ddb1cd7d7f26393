"""Documents say what works: their commands run, their links lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DefaultScope

from relpos_mm.checks.model import build_on_meta
from relpos_mm.data.bdpq import Knobs
from relpos_mm.models import RelPosSwin
from relpos_mm.registry import POSITIONS

from .commands import (
    NOT_RUN,
    NOT_RUN_WORDS,
    RUN_ELSEWHERE,
    commands,
    documents,
    reason_not_run,
)

# A training of two iterations instead of some hundred; evaluation and saving stay.
SHORT = (
    "train_cfg.max_iters=2 train_cfg.val_interval=2 default_hooks.checkpoint.interval=2"
    " default_hooks.logger.interval=1"
)


def test_excuses_are_in_use(repo_root: Path) -> None:
    shown = [command for document in documents(repo_root) for command in commands(document)]
    unused = [command for command in NOT_RUN if command not in shown]
    unused += [words for words in NOT_RUN_WORDS if not any(words in command for command in shown)]
    assert not unused, "remove these from tests/docs/commands.py"


def test_documents_run_elsewhere_are_named_there(repo_root: Path) -> None:
    for document, test in RUN_ELSEWHERE.items():
        assert document in (repo_root / test).read_text()


def test_links_lead_to_files_and_headings(repo_root: Path) -> None:
    broken = []
    for document in documents(repo_root):
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
            file = document.parent / target if target else document
            if "://" in target or (file.exists() and (not anchor or anchor in _anchors(file))):
                continue
            broken.append(f"{document.name}: {target}#{anchor}")
    assert not broken


def _anchors(document: Path) -> set[str]:
    """What GitHub calls the document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readmes_encoding_works(
    repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(
        r"```python\n(import .*?)```", (repo_root / "README.md").read_text(), re.S
    )
    assert len([line for line in source.splitlines() if line]) <= 20
    file = tmp_path / "distance_penalty.py"
    file.write_text(source)
    monkeypatch.setattr(POSITIONS, "_module_dict", dict(POSITIONS.module_dict))
    spec = importlib.util.spec_from_file_location("relpos_mm.encodings.distance_penalty", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    model = RelPosSwin(
        embed_dims=8,
        depths=(1, 1),
        num_heads=(1, 2),
        window_size=3,
        out_indices=(1,),
        drop_path_rate=0.0,  # a dropped block has no gradient
        position=[{"type": "DistancePenalty"}],
    )
    (out,) = model(torch.randn(1, 3, 30, 45))
    (out * torch.randn_like(out)).sum().backward()  # a norm's sum of squares has no gradient
    rates = [p for name, p in model.named_parameters() if name.endswith("rate")]
    assert [rate.shape[0] for rate in rates] == [1, 2]
    assert all(rate.grad.abs().sum() > 0 for rate in rates)


def test_named_files_exist(repo_root: Path) -> None:
    missing = []
    for document in documents(repo_root):
        for name in re.findall(
            r"`((?:tools|tests|configs|relpos_mm|docs)/[\w./-]+)`", document.read_text()
        ):
            if not (repo_root / name).exists():
                missing.append(f"{document.name}: {name}")
    assert not missing


def test_named_flags_exist(repo_root: Path) -> None:
    """Flags of our tools, in blocks and in running text: each stands in some parser or script."""
    files = [*(repo_root / "tools").rglob("*"), *(repo_root / "relpos_mm").rglob("*.py")]
    known = {
        flag
        for file in files
        if file.is_file() and file.suffix in (".py", ".sh")
        for flag in re.findall(r"[\"'](--[a-z][\w-]*)", file.read_text(encoding="utf-8"))
    }
    used = []
    for document in documents(repo_root):
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"tools/\w+\.(?:py|sh)([^`\n]*)", text):
            used += [(document.name, flag) for flag in re.findall(r"--[a-z][\w-]*", line)]
    assert len(used) > 20, "the documents show too few flags: are commands still found?"
    assert [(name, flag) for name, flag in used if flag not in known] == []


def test_named_make_targets_exist(repo_root: Path) -> None:
    makefile = (repo_root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    named = {
        target
        for document in documents(repo_root)
        for text in (document.read_text(), *(f"`{command}" for command in commands(document)))
        for target in re.findall(r"`make ([a-z-]+)", text)
    }
    assert {"demo", "test"} <= named <= targets


def test_named_checkpoints_are_those_that_the_configs_write(repo_root: Path) -> None:
    """A changed schedule must not leave commands behind that name a file which nobody writes."""
    text = "\n".join(document.read_text() for document in documents(repo_root))
    configs = dict(re.findall(r"train\.py \S*?(\w+)\.py --work-dir work_dirs/(\w+)", text))
    stems = {run: stem for stem, run in configs.items()}
    named = set(re.findall(r"work_dirs/(\w+)/((?:iter|epoch)_\d+\.pth)", text))
    assert len(named) > 3
    for run, checkpoint in named:
        stem = stems.get(run, run)
        written = [
            _last_checkpoint(repo_root / "configs" / folder / f"{stem}.py")
            for folder in ("", "mini")
        ]
        assert checkpoint in written, f"work_dirs/{run}/{checkpoint}: the runs write {written}"


def test_the_shown_start_report_has_the_numbers_of_its_config(repo_root: Path) -> None:
    cfg = Config.fromfile(repo_root / "configs" / "mini" / "cascade_swin_t_relonly.py")
    page = (repo_root / "docs" / "train.md").read_text()
    batch, knobs, model = cfg.train_dataloader.batch_size, Knobs(), build_on_meta(cfg)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    decayed = sum(len(group["params"]) for group in groups if group["weight_decay"])
    total = sum(len(group["params"]) for group in groups)
    for line in (
        f"  train                CocoDataset, {knobs.train_scenes:,} pictures",
        f"  val                  CocoDataset, {knobs.val_scenes:,} pictures",
        f"  batch                {batch} = {batch} x 1 process(es); recipe "
        f"{cfg.auto_scale_lr.base_batch_size}",
        f"  lr                   {cfg.optim_wrapper.optimizer.lr:g} (as in the config)",
        f"weight decay on {decayed} tensors and none on {total - decayed}",
        f"  frozen               0 of {sum(p.numel() for p in model.parameters()):,} parameters",
    ):
        assert line in page, line


def _last_checkpoint(config: Path) -> str:
    loop = Config.fromfile(config).train_cfg
    return f"iter_{loop.max_iters}.pth" if "max_iters" in loop else f"epoch_{loop.max_epochs}.pth"


@pytest.fixture(scope="module")
def workspace(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, so that commands leave the real one's data and runs alone."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("configs", "docs", "relpos_mm", "tools", "README.md", "requirements.txt"):
        (folder / name).symlink_to(repo_root / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.mark.train
def test_every_command_runs(repo_root: Path, workspace: Path) -> None:
    """All documents' commands in reading order, trainings cut to two iterations."""
    done: set[str] = set()
    for document in documents(repo_root):
        if document.name in RUN_ELSEWHERE:
            continue
        for command in commands(document):
            if reason_not_run(command) or command in done:
                continue
            done.add(command)
            _run(_shortened(command), workspace, document.name)
            _alias_checkpoints(repo_root, workspace)
    assert len(done) > 5, "the documents show too few commands: are the bash blocks still found?"


def _shortened(command: str) -> str:
    if not re.search(r"tools/(train\.py|dist_train\.sh)", command):
        return command
    return (
        f"{command} {SHORT}" if "--cfg-options" in command else f"{command} --cfg-options {SHORT}"
    )


def _run(command: str, workspace: Path, document: str) -> None:
    bin_dir = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=workspace,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{document}: {command}\n{done.stdout[-3000:]}"


def _alias_checkpoints(repo_root: Path, workspace: Path) -> None:
    """Give the last checkpoint of a shortened run the names that the documents call it by."""
    text = "\n".join(document.read_text() for document in documents(repo_root))
    for run, name in set(re.findall(r"work_dirs/(\w+)/((?:iter|epoch)_\d+\.pth)", text)):
        saved, wanted = (
            workspace / "work_dirs" / run / "iter_2.pth",
            workspace / "work_dirs" / run / name,
        )
        if saved.exists() and not wanted.exists():
            wanted.symlink_to(saved.name)
