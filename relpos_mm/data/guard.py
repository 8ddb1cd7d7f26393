"""Says what data is missing before a run starts, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relpos_mm.data.sources import Source, sources
from relpos_mm.engine.errors import UserError

_MINI_FAMILY = {"detection": "cascade", "segmentation": "upernet", "classification": "cls"}
_MINI_CONFIGS = Path("configs/mini")

_HOW_TO_GET = {
    "coco": """COCO 2017 (about 26 GB, https://cocodataset.org/#download):
unpack train2017.zip, val2017.zip and annotations_trainval2017.zip into {root},
so that it holds train2017/, val2017/ and annotations/.""",
    "ade20k": """ADE20K's challenge release of 150 classes, not the full set
(about 1 GB, http://sceneparsing.csail.mit.edu):
unpack ADEChallengeData2016.zip so that {root} holds images/ and annotations/.""",
    "imagenet": """ImageNet-1k (about 155 GB, https://image-net.org, after registration):
unpack ILSVRC2012_img_train.tar and the 1,000 tars in it into {root}/train/<wnid>/,
and ILSVRC2012_img_val.tar into {root}/val/, in class folders or flat with {root}/meta/val.txt.""",
    "bdpq": """The embedded data set is made here, in under a minute and without a download:
    python tools/data.py make-mini --out {root}""",
    "other": "This is no set that the project knows: correct data_root, ann_file or data_prefix.",
}


class MissingData(UserError):
    """A config's data is not there; the message says what, where, and what to do."""


def require_data(cfg: Mapping[str, Any], parts: Sequence[str] = ("train", "val", "test")) -> None:
    """Checks that every file and folder which the loaders of `cfg` read exists.

    Args:
        cfg: A resolved config; `cfg.filename`, where it has one, names the config in the message.
        parts: Loaders to check.

    Raises:
        MissingData: with one message about everything that is missing.
    """
    missing: dict[Path, list[str]] = {}
    blamed: list[Source] = []
    for source in sources(cfg, parts):
        for path in source.paths:
            if not path.exists():
                missing.setdefault(path, []).append(source.part)
                blamed.append(source)
    if missing:
        raise MissingData(_message(cfg, missing, blamed))


def _message(
    cfg: Mapping[str, Any], missing: Mapping[Path, list[str]], blamed: list[Source]
) -> str:
    name = getattr(cfg, "filename", None) or "this config"
    width = max(len(str(path)) for path in missing)
    lines = [f"{name} needs data that is not there:"]
    lines += [f"    {path!s:{width}}  ({', '.join(users)})" for path, users in missing.items()]
    advice = {_HOW_TO_GET[source.kind].format(root=_set_root(source)) for source in blamed}
    lines += ["", *sorted(advice)]
    kinds = {source.kind for source in blamed}
    if kinds & {"coco", "ade20k", "imagenet"}:
        lines += [
            "Where you have it elsewhere: link it (ln -s YOUR_FOLDER THIS_FOLDER).",
        ]
    if kinds != {"bdpq"}:
        lines += ["", "What works now, without any download:", *_mini_commands(cfg, str(name))]
    return "\n".join(lines)


def _set_root(source: Source) -> str:
    """The folder to make or fill: for bdpq the one above cls/, img/, ann/ and seg/."""
    root = source.root
    if source.kind == "bdpq" and root.parent.name == "cls":
        root = root.parent.parent
    return str(root)


def _mini_commands(cfg: Mapping[str, Any], name: str) -> list[str]:
    stem = Path(name).stem
    config = _MINI_CONFIGS / f"{stem}.py"
    if not config.exists():
        family = _MINI_FAMILY.get(str(cfg.get("task")), "cascade")
        config = _MINI_CONFIGS / f"{family}_swin_t_relonly.py"
    return ["    python tools/data.py make-mini", f"    python tools/train.py {config}"]
