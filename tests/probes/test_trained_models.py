"""The probes on the libraries' models, with random weights and a few pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

from relpos_mm.engine.cli import load_config
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.eval_cli import evaluate
from relpos_mm.probes.cli import main
from relpos_mm.probes.placing import Placing, predict
from relpos_mm.probes.subject import Subject, load_subject

from ..tools.conftest import Workspace, few_pictures, in_workspace, workspace  # noqa: F401

pytestmark = pytest.mark.train

CONFIGS = {
    "detection": "configs/mini/cascade_swin_t_absrel.py",
    "segmentation": "configs/mini/upernet_swin_t_absrel.py",
    "classification": "configs/mini/cls_swin_t_absrel.py",
}


def random_checkpoint(config: str, path: str = "random.pth") -> str:
    """Weights as the model is built, and a head that is sure of something."""
    cfg = load_config(config)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    cfg.model.data_preprocessor = cfg.model.get("data_preprocessor") or cfg.data_preprocessor
    state = MODELS.build(cfg.model).state_dict()
    for name, value in state.items():
        if "fc_cls" in name:
            value.normal_(std=0.1)
    torch.save({"state_dict": state, "meta": {"seed": 5}}, path)
    return path


def plain(sample: Any) -> dict[str, torch.Tensor]:
    """The tensors of a prediction."""
    if "pred_instances" in sample:
        return {key: torch.as_tensor(value) for key, value in sample.pred_instances.items()}
    if "pred_sem_seg" in sample:
        return {"labels": sample.pred_sem_seg.data}
    return {"scores": sample.pred_score}


@pytest.fixture(params=list(CONFIGS))
def subject(request: pytest.FixtureRequest, in_workspace: Workspace) -> Subject:  # noqa: F811
    config = CONFIGS[request.param]
    return load_subject(config, random_checkpoint(config))


def test_unplaced_pictures_are_those_of_the_test(subject: Subject) -> None:
    (batch,) = subject.pictures(1)
    with torch.no_grad():
        (expected,) = subject.model.test_step(batch)
    found = predict(subject.model, batch, lambda size: Placing())
    assert plain(found).keys() == plain(expected).keys()
    for name, value in plain(expected).items():
        assert torch.equal(plain(found)[name], value), name
    assert subject.variant == "absrel"
    assert subject.seed == 5


def test_some_pictures_are_spread_over_the_data_set(subject: Subject) -> None:
    names = [sample.img_path for batch in subject.loader() for sample in batch["data_samples"]]
    some = [batch["data_samples"][0].img_path for batch in subject.pictures(3)]
    assert some == [names[0], names[2], names[4]], "of seven"
    assert len(list(subject.pictures(100))) == 7


def test_the_score_is_that_of_the_test_tool(subject: Subject) -> None:
    evaluate([str(subject.cfg.filename), subject.checkpoint, "--work-dir", "w"])
    tested = json.loads(Path("w/result.json").read_text())["metrics"]
    assert subject.score() == pytest.approx(tested)
    few = subject.score(count=2)
    assert few.keys() == tested.keys()


def test_padding_is_what_a_larger_batch_mate_causes(in_workspace: Workspace) -> None:  # noqa: F811
    config = CONFIGS["detection"]
    subject = load_subject(config, random_checkpoint(config))
    one, other = subject.pictures(2)
    mate = {
        "inputs": [*one["inputs"], torch.zeros(3, 160, 192, dtype=torch.uint8)],
        "data_samples": [*one["data_samples"], *other["data_samples"]],
    }
    mate["data_samples"][1].set_metainfo({"img_shape": (160, 192), "ori_shape": (160, 192)})
    found = predict(subject.model, one, lambda size: Placing(canvas=(160, 192), padding=True))
    with torch.no_grad():
        expected, _ = subject.model.test_step(mate)
    assert len(expected.pred_instances)
    for name, value in plain(expected).items():
        assert torch.allclose(plain(found)[name].float(), value.float(), atol=1e-4), name


def test_a_checkpoint_of_another_encoding_is_refused(in_workspace: Workspace) -> None:  # noqa: F811
    path = random_checkpoint(CONFIGS["classification"])
    with pytest.raises(UserError, match=r"position encodings of random\.pth and of this config"):
        load_subject("configs/mini/cls_swin_t_noenc.py", path)


def test_the_documents_commands_run(in_workspace: Workspace, repo_root: Path) -> None:  # noqa: F811
    """Each command of docs/probes.md, on fewer pictures and on random weights of its config."""
    lines = (repo_root / "docs" / "probes.md").read_text().replace("\\\n", " ").splitlines()
    commands = [line.split("#")[0].split()[2:] for line in lines if "tools/probe.py " in line]
    own = {"padding", "translation", "size", "readout", "expressivity", "ablate"}
    commands = [command for command in commands if command and command[0] in own]
    assert {command[0] for command in commands} == own
    for name, *rest in commands:
        config = ""
        for word in rest:
            config = word if word.endswith(".py") else config
            if word.endswith(".pth"):
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                random_checkpoint(config, word)
        few = ["--pictures", "1", *(["--margin", "0", "--step", "32"] * (name == "translation"))]
        few = {"readout": ["--pictures", "9"], "expressivity": ["--forms", "rank 1"]}.get(name, few)
        main([name, *rest, *few])
    written = {path.name.split("_")[1] for path in Path("work_dirs").rglob("probe_*.json")}
    assert written == own
