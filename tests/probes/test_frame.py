"""What all probes share: the command line, records, tables and figures."""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError
from relpos_mm.probes import probe as probe_module
from relpos_mm.probes.cli import main, pair
from relpos_mm.probes.probe import PROBES, Probe
from relpos_mm.probes.record import Curve, Findings, Record, read_records, write_record
from relpos_mm.probes.show import by_variant, comparison, figure

CONFIG = "configs/mini/cls_swin_t_relonly.py"


def record(variant: str = "relonly", seed: int | None = 1, **numbers: float | None) -> Record:
    curve = Curve("stage 1", [0, 4, 8], [0.0, math.nan, None], "shift, px", "distance")
    return Record("toy", {"margin": 3}, variant, Findings(dict(numbers), [curve]), seed=seed)


def test_a_record_comes_back_as_written(tmp_path: Path) -> None:
    path = write_record(record(loss=-1.0, lost=math.inf), tmp_path / "deep")
    assert path.name == "probe_toy_relonly_s1.json"
    content = json.loads(path.read_text())
    assert content["level"] == "mechanism"
    assert content["findings"]["numbers"] == {"loss": -1.0, "lost": None}
    assert content["findings"]["curves"][0]["y"] == [0.0, None, None]
    assert {"torch", "mmcv", "relpos_mm"} <= content["versions"].keys()
    (back,) = read_records([tmp_path])
    assert write_record(back, tmp_path / "again").read_text() == path.read_text()


def test_other_settings_have_another_name(tmp_path: Path) -> None:
    plain = record()
    names = [write_record(plain, tmp_path, {"margin": margin}).name for margin in (3, None)]
    assert names[0] == "probe_toy_relonly_s1.json"
    assert re.fullmatch(r"probe_toy_relonly_s1_set[0-9a-f]{6}\.json", names[1])
    plain.settings["margin"] = 4
    assert write_record(plain, tmp_path, {"margin": None}).name not in names
    assert len(read_records([tmp_path])) == 3


def test_another_config_has_another_name(tmp_path: Path) -> None:
    sizes = [replace(record(), options={"size": size}) for size in (64, 96)]
    names = {write_record(one, tmp_path).name for one in (record(), *sizes)}
    assert len(names) == 3
    assert {record.options.get("size") for record in read_records([tmp_path])} == {None, 64, 96}
    moved = replace(record(), options={"test_dataloader.dataset.data_root": "/elsewhere/"})
    assert moved.file_name() == record().file_name()
    other = replace(record(), options={"model.backbone.position": []})
    assert other.file_name() != record().file_name()


def test_a_record_holds_the_options_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = SimpleNamespace(
        variant="noenc",
        task="",
        seed=1,
        checkpoint="c",
        sha256="0",
        data_sha256=None,
        cfg=SimpleNamespace(filename="f.py"),
    )
    monkeypatch.setattr(probe_module, "load_subject", lambda *_: subject)

    class Toy(Probe):
        about = "nothing"
        name = "toy"

        def measure(self, subject: Any, settings: dict[str, Any]) -> Findings:
            return Findings()

    for options in (None, {"a.b": 1}):
        (found,) = Toy().records([("f.py", "c")], {}, "cpu", options)
        assert found.options == (options or {})


def test_other_files_are_no_records(tmp_path: Path) -> None:
    for number, text in enumerate(("", "[]", "{}", '{"findings": {"curves": [1]}}')):
        (tmp_path / f"probe_{number}.json").write_text(text)
    assert read_records([tmp_path]) == []


def test_the_table_has_a_column_per_group() -> None:
    records = [record(gain=1.0), record(seed=2, gain=3.0), record("noenc", gain=None)]
    head, rows = comparison(records)
    assert head == ["", "relonly, seed 1", "relonly, seed 2", "noenc, seed 1"]
    assert rows == [["gain", "1", "3", "n/a"]]
    head, rows = comparison(records, by_variant)
    assert (head, rows) == (["", "relonly", "noenc"], [["gain", "2 ± 1.4 (2)", "n/a"]])


def test_differences_that_cancel_have_a_mean_of_zero() -> None:
    records = [record(seed=seed, gain=gain) for seed, gain in ((1, 0.3), (2, -0.1 - 0.2))]
    assert sum(r.findings.numbers["gain"] for r in records) != 0
    assert comparison(records, by_variant)[1] == [["gain", "0 ± 0.42 (2)"]]


def test_copies_of_one_number_have_no_spread() -> None:
    records = [record(seed=seed, gain=0.1 + 0.2 * (seed > 0)) for seed in (1, 2, 3)]
    assert comparison(records, by_variant)[1] == [["gain", "0.3 (3 alike)"]]


def test_the_figure_has_a_colour_per_variant_and_names_each_once() -> None:
    svg = figure([record(), record(seed=2), record("noenc")])
    assert svg is not None
    ElementTree.fromstring(svg)
    assert svg.count(">relonly<") == svg.count(">noenc<") == 1
    bare = record()
    bare.findings.curves = []
    assert figure([bare]) is None


def test_models_are_configs_with_checkpoints(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py", "1.pth", "2.pth", "3.pth"):
        Path(name).touch()
    found = pair(["a.py", "1.pth", "2.pth", "b.py", "3.pth"])
    assert found == [("a.py", "1.pth"), ("a.py", "2.pth"), ("b.py", "3.pth")]
    for names, message in (
        (["1.pth", "a.py"], r"1.pth: a config \(.py\) comes first"),
        (["a.py"], "a.py: no checkpoint after it"),
        (["a.py", "b.py", "1.pth"], "a.py: no checkpoint after it"),
        (["a.py", "1.pth", "b.py"], "b.py: no checkpoint after it"),
        (["a.py", "none.pth"], "Checkpoint not found: none.pth"),
        (["none.py", "1.pth"], "Config not found: none.py"),
    ):
        with pytest.raises(UserError, match=message):
            pair(names)


def test_an_unknown_probe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["padings", CONFIG, "x.pth"])
    assert "invalid choice: 'padings' (choose from" in capsys.readouterr().err


def test_missing_files_and_folders_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repo_root: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(repo_root)
    out = tmp_path / "out"
    assert run_tool(lambda: main(["ablate", CONFIG, "none.pth", "--out", str(out)])) == 2
    assert capsys.readouterr().err == "error: Checkpoint not found: none.pth\n"
    assert not out.exists()
    file = tmp_path / "file"
    file.touch()
    assert run_tool(lambda: main(["ablate", CONFIG, str(file), "--out", str(file)])) == 2
    message = f"error: --out: {file}: {file} is no folder; name another folder\n"
    assert capsys.readouterr().err == message


def test_a_probe_gets_its_own_flags_and_its_results_are_written(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Toy(Probe):
        about = "what is given"
        needs_model = False

        def add_arguments(self, parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--margin", type=int)

        def measure(self, subject: Any, settings: dict[str, Any]) -> Findings:
            raise AssertionError("nothing to measure")

        def records(self, models: Any, settings: dict[str, Any], *rest: Any) -> list[Record]:
            assert settings == {"margin": 3}
            return [record(gain=2.0), record("noenc", gain=4.0)]

    monkeypatch.setattr(PROBES, "_module_dict", {**PROBES.module_dict, "toy": Toy})
    main(["toy", "--margin", "3", "--out", str(tmp_path)])
    names = {path.name for path in tmp_path.iterdir()}
    names = {re.sub("_set[0-9a-f]{6}", "_set", name) for name in names}
    records = {"probe_toy_relonly_s1_set.json", "probe_toy_noenc_s1_set.json"}
    assert names == {"probe_toy.md", "probe_toy.svg", *records}
    assert "mechanism" in (tmp_path / "probe_toy.md").read_text()
    assert "| gain |" in capsys.readouterr().out
