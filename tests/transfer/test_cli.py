"""The command line: exit codes, files, and what it prints."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert
from relpos_mm.transfer.describe import describe

from .helpers import backbone_config, build, same_tensors
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
    [[], ["a.pth"], ["a.pth", "b.pth"], ["a.pth", "b.pth", "--config", "c.py", "--to", "mm"]],
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
    (tmp_path / "cut.pth").write_bytes((tmp_path / "swin.pth").read_bytes()[:5000])
    assert tool.main(["--inspect", str(tmp_path / "swin.pth"), str(tmp_path / "cut.pth")]) == 2
    assert "cannot be used: the file is cut or damaged" in capsys.readouterr().out
