"""The suite ``backbones``: RelPosSwin against other libraries' Swin, with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.encodings.grid import Size
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert

from .benchmark import DTYPES, STEPS, LeftOut, Limit, Pair, Setting, compared
from .trunk_step import (
    DROP_PATH,
    Arch,
    Results,
    TrunkStep,
    largest_difference,
    over_pictures,
    rounding,
)

_NAMES = {"suite": "backbones", "name": "RelPosSwin"}
# Inverse of the speed-up that the project set itself, by (library, size, dtype, step).
LIMITS: dict[tuple[str, str, str, str], Limit] = {
    ("mmdet", "1x512x683", "float32", "inference"): Limit(1 / 1.12),
    ("mmdet", "1x512x683", "float32", "training"): Limit(1 / 1.08, memory=1.0),
    ("mmdet", "2x224x224", "float32", "inference"): Limit(1 / 1.05),
    ("mmdet", "2x224x224", "float32", "training"): Limit(1 / 1.03),
    ("mmdet", "1x512x683", "bfloat16", "inference"): Limit(1.0),
    ("mmdet", "1x512x683", "bfloat16", "training"): Limit(1.0),
}
# Libraries of a run that names none; sizes that are not here take all. A step takes seconds there.
_CHOSEN = {"1x800x1333": ("mmdet",)}


class Unfit(Exception):
    """A library cannot take the input, or is not installed; the message says which."""


class _WithNorms(nn.Module):
    """A classifier's stages with the output norms that dense models have."""

    def __init__(
        self, theirs: nn.Module, stages: Callable[[Tensor], Sequence[Tensor]], ours: RelPosSwin
    ) -> None:
        super().__init__()
        self.theirs, self.stages = theirs, stages
        self.norms = nn.ModuleList(getattr(ours, f"norm{i}") for i in ours.out_indices)

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = zip(self.stages(x), self.norms, strict=True)
        return [norm(one).permute(0, 3, 1, 2).contiguous() for one, norm in maps]


def _mmdet(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from mmdet.models.backbones.swin import SwinTransformer

    theirs = SwinTransformer(**arch, window_size=7, drop_path_rate=DROP_PATH)
    return _loaded(theirs, ours, "mm")


def _mmpretrain(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from mmpretrain.models.backbones.swin_transformer import SwinTransformer

    theirs = SwinTransformer(
        arch=dict(arch),
        window_size=7,
        drop_path_rate=DROP_PATH,
        out_indices=(0, 1, 2, 3),
        pad_small_map=True,
    )
    return _loaded(theirs, ours, "mm")


def _torchvision(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    _require_fit("torchvision", hw, 4)
    theirs = SwinTransformer(
        [4, 4],
        arch["embed_dims"],
        list(arch["depths"]),
        list(arch["num_heads"]),
        [7, 7],
        stochastic_depth_prob=DROP_PATH,
    )
    _loaded(theirs, ours, "torchvision")

    def stages(x: Tensor) -> list[Tensor]:
        outputs = []
        for i, layer in enumerate(theirs.features):
            x = layer(x)
            if i % 2:
                outputs.append(x)
        return outputs

    return _WithNorms(theirs, stages, ours)


def _timm(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    if find_spec("timm") is None:
        raise Unfit("timm is not installed (pip install timm)")
    from timm.models.swin_transformer import SwinTransformer

    _require_fit("timm", hw, 32)
    theirs = SwinTransformer(
        img_size=hw,
        embed_dim=arch["embed_dims"],
        depths=arch["depths"],
        num_heads=arch["num_heads"],
        window_size=7,
        drop_path_rate=DROP_PATH,
        num_classes=0,
    )
    _loaded(theirs, ours, "timm")

    def stages(x: Tensor) -> list[Tensor]:
        x, outputs = theirs.patch_embed(x), []
        for layer in theirs.layers:  # each begins with its merging
            x = layer(x)
            outputs.append(x)
        return outputs

    return _WithNorms(theirs, stages, ours)


# Library -> its network, the rule for small maps that it follows, and its layout of weights.
LIBRARIES: dict[str, tuple[Callable[..., nn.Module], str, str]] = {
    "mmdet": (_mmdet, "pad", "mm"),
    "mmpretrain": (_mmpretrain, "pad", "mm"),
    "torchvision": (_torchvision, "shrink", "torchvision"),
    "timm": (_timm, "shrink", "timm"),
}


def _require_fit(library: str, hw: Size, of: int) -> None:
    if hw[0] % of or hw[1] % of:
        raise Unfit(f"{library} takes multiples of {of} pixels, not {hw[0]} x {hw[1]}")
    last = [-(-side // 32) for side in hw]
    if min(last) <= 7 and last != [7, 7]:
        raise Unfit(
            f"{library} has a rule of its own for maps below a window, {last[0]} x {last[1]} here"
        )


def _loaded(theirs: nn.Module, ours: RelPosSwin, layout: str) -> nn.Module:
    """Give ``theirs`` the weights of ``ours``; only heads, final norms and buffers stay its own."""
    state = convert(ours.state_dict(), target=layout)
    result = theirs.load_state_dict(state, strict=False)
    apart = ("relative_position_index", "attn_mask", "head.", "norm.")
    left = [key for key in result.missing_keys if not key.endswith(apart[:2])]
    left = [key for key in left if not key.startswith(apart[2:])]
    if left or result.unexpected_keys:
        raise UserError(f"{layout} weights do not fit: {left[:3]} {result.unexpected_keys[:3]}")
    return theirs


def in_layout(ours: Results, layout: str, theirs: Results) -> Results:
    """Bring the gradients of RelPosSwin under the names and orders of another layout.

    Raises:
        UserError: Parameters of the other network have no counterpart.
    """
    known = convert(ours.parameters, target=layout)
    shared = {name for name in theirs.parameters if name.startswith("norms.")}
    if unknown := theirs.parameters.keys() - known.keys() - shared:
        raise UserError(f"no gradients to compare with: {', '.join(sorted(unknown)[:3])}")
    parameters = {name: known[name] for name in theirs.parameters if name not in shared}
    parameters |= {name: ours.parameters[f"norm{name[6:]}"] for name in shared}
    return Results(ours.outputs, ours.picture, parameters)


def _at_size(
    size: str, x: Tensor, libraries: Iterable[str] | None, setting: Setting, arch: Arch
) -> Iterator[Pair | LeftOut]:
    """Yield RelPosSwin against each library, after outputs and all gradients agree in float32."""
    for library in _CHOSEN.get(size, LIBRARIES) if libraries is None else libraries:
        if library not in LIBRARIES:
            raise UserError(f"no library is called {library!r}; known: {', '.join(LIBRARIES)}")
        make, rule, layout = LIBRARIES[library]
        torch.manual_seed(0)
        ours = RelPosSwin(**arch, drop_path_rate=DROP_PATH, small_map=rule)  # type: ignore[arg-type]
        try:
            theirs = make(ours, arch, tuple(x.shape[2:]))
        except Unfit as unfit:
            yield LeftOut(f"{library} at {size}", str(unfit))
            continue
        models = theirs.to(x.device), ours.to(x.device)
        expected = TrunkStep(models[0], x, torch.float32).results().renamed("theirs.")
        for dtype in setting.dtypes:
            a, b = (TrunkStep(model, x, DTYPES[dtype]) for model in models)
            result = in_layout(b.results(), layout, expected)
            limits = {step: LIMITS.get((library, size, dtype, step)) for step in STEPS}
            yield from compared(
                a,
                b,
                {**_NAMES, "size": size, "dtype": dtype, "base": library},
                setting.steps,
                partial(largest_difference, b, result, expected),
                limits.get,
                partial(rounding, a, expected, "theirs."),
            )


pairs = partial(over_pictures, _at_size)
