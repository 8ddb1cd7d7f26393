"""What other code bases call the arguments of this project's models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

# Left: official classification, detection and segmentation code, timm, torchvision, the stock
# OpenMMLab backbones; DETR's and mmdet's encoders. Right: what to write here.
RENAMED: Mapping[str, str] = {
    "embed_dim": "embed_dims=<number>",
    "img_size": "pretrain_img_size=<number>",
    "in_chans": "in_channels=<number>",
    "ape": "position=[dict(type='AbsoluteTable'), ...]",
    "use_abs_pos_embed": "position=[dict(type='AbsoluteTable'), ...]",
    "rpe": "position=[dict(type='RelativeBias')], or [] for none",
    "use_checkpoint": "with_cp=True",
    "pretrained": "init_cfg=dict(type='Pretrained', checkpoint=<file>)",
    "stochastic_depth_prob": "drop_path_rate=<number>",
    "pad_small_map": "small_map='pad' or 'shrink'",
    "always_partition": "small_map='pad' or 'shrink'",
    "arch": "embed_dims=, depths= and num_heads= (Swin-T is the default)",
    "convert_weights": "no argument; convert the file once with tools/transfer.py",
    "num_classes": "no argument; the classifier's head has it",
    "d_model": "embed_dims=<number>",
    "nhead": "num_heads=<number>",
    "dim_feedforward": "feedforward_channels=<number>",
    "normalize_before": "pre_norm=True",
    "num_cp": "with_cp=True for all layers",
    "layer_cfg": "num_heads=, feedforward_channels= and dropout= (all layers are equal)",
}


def refuse_unknown(owner: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raise one error that says for every unknown argument what to write instead.

    Raises:
        TypeError: ``unknown`` is not empty.
    """
    known = sorted(known)
    lines = []
    for name in unknown:
        near = get_close_matches(name, known, n=1)
        answer = RENAMED.get(name, "")
        if answer.startswith("no argument") or answer.split("=")[0] in known:
            lines.append(f"{name} -> {answer}")
        elif near:
            lines.append(f"{name} -> did you mean {near[0]}?")
        else:
            lines.append(f"{name} -> not known; arguments are {', '.join(known)}")
    if lines:
        raise TypeError(f"{owner} got unknown arguments: " + "; ".join(lines))
