"""The suite ``trunk``: a Swin-T backbone with each encoding against the same without."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.encodings.base import position_modules
from relpos_mm.models import RelPosSwin

from .benchmark import DTYPES, LeftOut, Limit, Pair, Setting, compared
from .catalogue import CATALOGUE, position_of
from .trunk_step import DROP_PATH, Arch, TrunkStep, largest_difference, over_pictures, rounding

_NAMES = {"suite": "trunk", "base": "noenc"}
# Terms that do not depend on the content: one tensor is added to tokens or logits.
ADDITIVE = ("abs", "sin2d", "abswin", "rel", "dpb", "logcpb", "alibi", "lookhere")
# Where the project set itself bars, in the training step.
LIMIT_SIZE, LIMIT_DTYPE = "2x224x224", "float32"
LIMITS = {**dict.fromkeys(ADDITIVE, Limit(1.03)), "irpe_k": Limit(1.12)}
# Encodings of a run that names none; sizes that are not here take all. A step takes seconds there.
_CHOSEN = {
    "1x512x683": ("rel", "rope_axial", "decomposed", "irpe_k"),
    "1x800x1333": ("rel", "irpe_k"),
}


def _at_size(
    size: str, x: Tensor, encodings: Iterable[str] | None, setting: Setting, arch: Arch
) -> Iterator[Pair | LeftOut]:
    """Yield each encoding against none, after outputs and all gradients agree with float64."""
    none = _trunk((), arch).to(x.device)
    exact_none = TrunkStep(copy.deepcopy(none).double(), x.double(), torch.float64).results()
    for name in _CHOSEN.get(size, CATALOGUE) if encodings is None else encodings:
        model = _trunk(position_of(name), arch).to(x.device)
        exact = TrunkStep(copy.deepcopy(model).double(), x.double(), torch.float64).results()
        for dtype in setting.dtypes:
            a, b = (TrunkStep(one, x, DTYPES[dtype]) for one in (none, model))
            barred = {"training"} if (size, dtype) == (LIMIT_SIZE, LIMIT_DTYPE) else set()
            limits = dict.fromkeys(barred, LIMITS.get(name))
            yield from compared(
                a,
                b,
                {**_NAMES, "size": size, "dtype": dtype, "name": name},
                setting.steps,
                partial(largest_difference, b, b.results(), exact),
                limits.get,
                partial(rounding, a, exact_none, ""),
            )


pairs = partial(over_pictures, _at_size)


def _trunk(position: Iterable[Mapping[str, Any]], arch: Mapping[str, Any]) -> RelPosSwin:
    """Build a backbone whose encodings are past their initial values, of which many are zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = RelPosSwin(**arch, drop_path_rate=DROP_PATH, position=list(position))
        for encoding in position_modules(model).values():
            for parameter in encoding.parameters():
                nn.init.normal_(parameter, std=0.1)
    return model
