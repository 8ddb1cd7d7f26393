"""The command line: exit codes, files, and what it prints."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import LAYOUTS, convert
from relpos_mm.transfer.describe import describe
from relpos_mm.transfer.files import read_checkpoint, write_safetensors

from .helpers import backbone_config, build, same_tensors
from .test_files import write_strangers
from .test_refusals import official, write_config


@pytest.fixture(scope="module")
def tool(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("transfer_tool", repo_root / "tools/transfer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_transfer_writes_weights_the_config_takes(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "config.py", window_size=(7, 7))
    torch.save({"model": official()}, tmp_path / "swin.pth")
    out, log = tmp_path / "out" / "weights.pth", tmp_path / "report" / "r.json"
    arguments = [str(tmp_path / "swin.pth"), str(out), "--config", str(config), "--json", str(log)]
    assert tool.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "loaded 46 of 50 backbone tensors (3 resized, 4 new, " in printed
    assert f"written: {out}" in printed

    content = torch.load(out, weights_only=True)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(out) == []
    facts = content["meta"]["transfer"]
    assert Path(facts["source"]).name == "swin.pth"
    assert len(facts["sha256"]) == 64
    assert (facts["layout"], facts["kind"]) == ("official", "classifier")
    assert facts["counts"] == {"loaded": 43, "resized": 3, "new": 4, "dropped": 5, "problem": 0}
    report = json.loads(log.read_text())
    assert len(report["entries"]) == 55
    assert report["summary"] == facts["summary"]

    config_dict = backbone_config(window_size=(7, 7))
    del config_dict["type"]
    model = torch.nn.ModuleDict({"backbone": RelPosSwin(**config_dict)})
    rest = model.load_state_dict(content["state_dict"], strict=False)
    assert sorted(rest.missing_keys) == sorted(
        f"backbone.norm{i}.{p}" for i in (0, 1) for p in ("weight", "bias")
    )
    assert rest.unexpected_keys == []


def test_dry_run_writes_nothing(tool: ModuleType, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.py")
    torch.save(official(), tmp_path / "swin.pth")
    before = sorted(tmp_path.iterdir())
    assert tool.main([str(tmp_path / "swin.pth"), "--dry-run", "--config", str(config)]) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_refusals_exit_with_two(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "config.py", "absrel")
    torch.save(official(), tmp_path / "swin.pth")
    out, log = tmp_path / "out.pth", tmp_path / "r.json"
    arguments = [str(tmp_path / "swin.pth"), str(out), "--config", str(config), "--json", str(log)]
    assert tool.main(arguments) == 2
    printed = capsys.readouterr()
    assert "refused: " in printed.err
    assert "file relonly, config absrel" in printed.err
    assert "Traceback" not in printed.err
    assert not out.exists()
    assert json.loads(log.read_text())["counts"]["problem"] == 1
    assert tool.main([str(tmp_path / "absent.pth"), *arguments[1:]]) == 2
    assert "absent.pth: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a.pth"],
        ["a.pth", "b.pth"],
        ["a.pth", "b.pth", "--config", "c.py", "--to", "mm"],
        ["a.pth", "b.pth", "--to", "mm", "--json", "c.json"],
    ],
)
def test_wrong_usage(tool: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        tool.main(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize(("layout", "container"), [("official", "model"), ("mm", "state_dict")])
def test_back_to_other_layouts(
    tool: ModuleType, tmp_path: Path, layout: str, container: str
) -> None:
    ours = build().state_dict()
    torch.save({"state_dict": {f"backbone.{k}": v for k, v in ours.items()}}, tmp_path / "a.pth")
    assert tool.main([str(tmp_path / "a.pth"), str(tmp_path / "b.pth"), "--to", layout]) == 0
    written = torch.load(tmp_path / "b.pth", weights_only=True)[container]
    assert same_tensors(written, convert(ours, target=layout))


def test_inspect(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = official("absrel") | {"head.weight": torch.zeros(5, 16), "head.bias": torch.zeros(5)}
    torch.save({"model": state, "model_ema": state}, tmp_path / "swin.pth")
    log = tmp_path / "r.json"
    assert tool.main(["--inspect", str(tmp_path / "swin.pth"), "--json", str(log)]) == 0
    (facts,) = json.loads(log.read_text())
    assert facts["problem"] == ""
    assert facts["safe"] is True
    assert (facts["kind"], facts["layout"], facts["encoding"]) == (
        "classifier",
        "official",
        "absrel",
    )
    assert (facts["embed_dims"], facts["depths"], facts["num_heads"]) == (8, [1, 2], [2, 4])
    assert facts["window"] == ["4x4", "4x4"]
    assert facts["absolute"] == [1, 64, 8]
    assert facts["num_classes"] == 5
    assert facts["averaged_weights"] is True
    assert facts["parameters"] == sum(
        p.numel() for p in build("absrel", out_indices=(1,)).parameters()
    )
    meta = {"dataset_meta": {"classes": ("cat", "dog")}}
    torch.save({"state_dict": build().state_dict(), "meta": meta}, tmp_path / "detector.pth")
    assert describe(tmp_path / "detector.pth").num_classes == 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inspect_knows_every_layout(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    ours = build(out_indices=(1,)).state_dict()
    write_safetensors(tmp_path / "f.safetensors", convert(ours, target=layout))
    assert tool.main(["--inspect", str(tmp_path / "f.safetensors")]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert (facts["layout"], facts["encoding"], facts["kind"]) == (layout, "relonly", "classifier")
    assert (facts["window"], facts["num_heads"]) == ("['4x4', '4x4']", "[2, 4]")
    assert facts["safe"] == "True"


def test_inspect_says_one_line_of_what_cannot_be_used(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strangers = write_strangers(tmp_path)
    torch.save({"conv1.weight": torch.zeros(8, 3, 7, 7)}, tmp_path / "resnet.pth")
    torch.save({"optimizer": {"lr": 0.1}}, tmp_path / "optimizer.pth")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    strangers |= {
        "resnet.pth": "no Swin backbone in any known layout .*conv1.weight",
        "optimizer.pth": "no tensors found, only the keys optimizer",
        "list.pth": "a list is not a state dict",
    }
    assert tool.main(["--inspect", *(str(tmp_path / name) for name in strangers)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(strangers)
    for line, (name, message) in zip(lines, strangers.items(), strict=True):
        assert re.match(f"{tmp_path}/{name}: cannot be used: {message}", line), line


def test_what_is_written_replaces_neither_source_nor_folder(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_config(tmp_path / "config.py"))
    source = tmp_path / "swin.pth"
    torch.save(official(), source)
    before = source.read_bytes()
    for out, message in (
        (source, "is the file that is read"),
        (tmp_path, "a folder; give the name"),
        (tmp_path / "swin.pth" / "out.pth", "cannot be written"),
    ):
        for way in (["--config", config], ["--to", "mm"]):
            assert tool.main([str(source), str(out), *way]) == 2
            assert f"refused: {out}: {message}" in capsys.readouterr().err
    assert source.read_bytes() == before
    out = str(tmp_path / "out.safetensors")
    assert tool.main([str(source), out, "--config", config]) == 2
    assert "load_from reads .pth alone" in capsys.readouterr().err
    assert tool.main([str(source), out, "--to", "mm"]) == 0
    assert same_tensors(read_checkpoint(out)["state_dict"], convert(official(), target="mm"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--grid", "0", "4"], "--grid 0 4: both sides must be at least 1"),
        (["--window", "7", "-7"], "--window 7 -7: both sides must be"),
        (["--prefix-tokens", "-1"], "--prefix-tokens -1: must be 0 or more"),
    ],
)
def test_impossible_numbers(
    tool: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    torch.save(official(), tmp_path / "swin.pth")
    assert tool.main([str(tmp_path / "swin.pth"), "--dry-run", "--to", "mm", *words]) == 2
    assert f"refused: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--fit-tables"], ["--window", "7", "7"], ["--keep-head"], ["--mode", "extend"]],
)
def test_options_that_an_export_does_not_read(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    torch.save(official(), tmp_path / "swin.pth")
    assert tool.main([str(tmp_path / "swin.pth"), "--dry-run", "--to", "mm", *words]) == 2
    message = f"refused: {words[0]}: has no effect with --to; leave it out\n"
    assert capsys.readouterr().err == message


def test_a_grid_serves_an_absolute_table(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for encoding, code in (("absonly", 0), ("noenc", 2)):
        file = tmp_path / f"{encoding}.pth"
        torch.save(convert(build(encoding).state_dict(), target="official"), file)
        assert tool.main([str(file), "--dry-run", "--to", "mm", "--grid", "8", "8"]) == code
    assert "--grid: serves an absolute table, and the file has none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda value: value / 0, "are NaN or infinite; the file's training failed"),
        (lambda value: value.to("meta"), "a tensor without values"),
        (lambda value: value.to_sparse(), "a tensor stored sparsely"),
    ],
)
@pytest.mark.parametrize("to", ["--to", "--config"])
def test_tensors_that_are_no_weights_go_nowhere(
    tool: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[torch.Tensor], torch.Tensor],
    message: str,
    to: str,
) -> None:
    state, key = official(), "layers.0.blocks.0.mlp.fc1.weight"
    torch.save(state | {key: spoil(state[key])}, tmp_path / "swin.pth")
    out = tmp_path / "out.pth"
    where = "mm" if to == "--to" else str(write_config(tmp_path / "config.py"))
    assert tool.main([str(tmp_path / "swin.pth"), str(out), to, where]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("refused: ")
    assert message in printed
    assert not out.exists()
    assert tool.main(["--inspect", str(tmp_path / "swin.pth")]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path}/swin.pth: cannot be used: {key}: ")
    assert message in line


def test_a_report_that_cannot_be_written_stops_before_the_weights(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(official(), tmp_path / "swin.pth")
    config, out = write_config(tmp_path / "config.py"), tmp_path / "out.pth"
    arguments = [str(tmp_path / "swin.pth"), str(out), "--config", str(config)]
    for taken in (tmp_path, config / "report.json"):
        assert tool.main([*arguments, "--json", str(taken)]) == 2
        assert "refused: " in capsys.readouterr().err
        assert not out.exists()


def test_a_full_disk_is_one_message(
    tool: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.save(official(), tmp_path / "swin.pth")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(full))
    out = tmp_path / "out.pth"
    assert tool.main([str(tmp_path / "swin.pth"), str(out), "--to", "mm"]) == 2
    assert f"refused: {out}: No space left on device" in capsys.readouterr().err
    assert not out.exists()
