"""How much of the place of a token a linear map reads off the features of each stage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from mmengine.registry import MODELS
from torch import Generator, Tensor

from relpos_mm.engine.errors import UserError, building
from relpos_mm.engine.options import count
from relpos_mm.models import RelPosSwin

from .placing import picture_of, stage_outputs, swin_of
from .probe import PROBES, Probe
from .record import Curve, Findings
from .ridge import held_out_r2
from .subject import Subject

_HELD_OUT = 4  # every so manieth picture
_TOKENS = 64  # per picture, and as many pairs
_REACH = 3  # tokens between the two of a pair, at most, along each axis
TARGETS = ("absolute place", "distance to the border", "relative offset")


@PROBES.register_module("readout")
class Readout(Probe):
    """Ridge regressions from a stage's features to the place of their token, judged on R2.

    Pictures are fitted or judged, never both. Two controls stand beside every number: the same
    network with its first random values (what architecture and borders give away untrained) and
    targets shuffled among the tokens of a picture (what the regression finds where nothing is). The
    offset is read from the difference of two tokens at most three apart, so an error that is small
    against the picture can be large against the offset.
    """

    about: ClassVar[str] = "linear probes for absolute place, distance to the border, offset"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pictures", type=count, default=40, help="of the test set")
        parser.add_argument("--draw", type=int, default=0, help="seed of tokens and first values")

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        if settings["pictures"] <= 2 * _HELD_OUT:
            raise UserError(
                f"--pictures: {settings['pictures']} are too few, every {_HELD_OUT}th is held out; "
                f"give more than {2 * _HELD_OUT}"
            )
        trained = swin_of(subject)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings["draw"])
            with building("model.backbone", subject.cfg.filename):
                untrained = MODELS.build(subject.cfg.model.backbone)
        untrained = untrained.to(next(trained.parameters()).device).eval()
        pictures = [picture_of(subject.model, b)[0] for b in subject.pictures(settings["pictures"])]
        found = Findings()
        scores = {
            name: [read_out(maps, settings["draw"]) for maps in features(backbone, pictures)]
            for name, backbone in (("trained", trained), ("untrained", untrained))
        }
        for target in TARGETS:
            lines = {
                "trained": [stage[target][0] for stage in scores["trained"]],
                "untrained": [stage[target][0] for stage in scores["untrained"]],
                "shuffled": [stage[target][1] for stage in scores["trained"]],
            }
            for series, values in lines.items():
                for stage, value in enumerate(values):
                    found.numbers[f"stage {stage + 1}, {target}, {series}, R2"] = value
                stages: list[float | str] = [f"{stage + 1}" for stage in range(len(values))]
                found.curves.append(Curve(target, stages, values, "stage", "R2", series))
        found.details["pictures"] = len(pictures)
        found.notes.append(
            f"{len(pictures)} pictures, every {_HELD_OUT}th held out; of each {_TOKENS} tokens or "
            "pairs, or all where there are fewer tokens"
        )
        return found


@torch.no_grad()
def features(backbone: RelPosSwin, pictures: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return each stage's maps ``(C, H, W)`` of pictures ``(1, 3, h, w)``, on the CPU."""
    stages: list[list[Tensor]] = [[] for _ in backbone.stages]
    for picture in pictures:
        with stage_outputs(backbone) as maps:
            backbone(picture)
        for stage, found in zip(stages, maps, strict=True):
            stage.append(found[0].float().cpu())
    return stages


def read_out(maps: Sequence[Tensor], seed: int = 0) -> dict[str, tuple[float | None, float | None]]:
    """R2 on held-out pictures, and the same with shuffled targets, by target.

    Args:
        maps: Features ``(C, H, W)`` of each picture.
        seed: Of the choice of tokens.

    Returns:
        Means over rows and columns where the target has both; None where all tokens of a stage say
        the same, as in a map of one token.
    """
    generator = Generator().manual_seed(seed)
    samples: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {target: [] for target in TARGETS}
    for stage in maps:
        for target, (x, y) in _samples(stage, generator).items():
            shuffled = y[torch.randperm(len(y), generator=generator)]
            samples[target].append((x, y, shuffled))
    numbers: dict[str, tuple[float | None, float | None]] = {}
    for target, found in samples.items():
        x, y, shuffled = (torch.cat(parts) for parts in zip(*found, strict=True))
        picture = torch.repeat_interleave(
            torch.arange(len(found)), torch.tensor([len(part[0]) for part in found])
        )
        fold = picture % _HELD_OUT != 0
        if not y[fold].std(0).gt(0).all() or not y[~fold].std(0).gt(0).all():
            numbers[target] = (None, None)
            continue
        real, control = (held_out_r2(x, t, fold, picture).mean().item() for t in (y, shuffled))
        numbers[target] = (real, control)
    return numbers


def _samples(stage: Tensor, generator: Generator) -> dict[str, tuple[Tensor, Tensor]]:
    """Features and targets of some tokens and pairs of one map ``(C, H, W)``."""
    size = torch.tensor(stage.shape[1:])
    tokens = stage.flatten(1).t()
    place = torch.cartesian_prod(*(torch.arange(side) for side in stage.shape[1:]))
    chosen = torch.randperm(len(tokens), generator=generator)[:_TOKENS]
    border = torch.minimum(place, size - 1 - place).amin(1, keepdim=True)
    first = torch.randint(len(tokens), (_TOKENS,), generator=generator)
    offset = torch.randint(-_REACH, _REACH + 1, (_TOKENS, 2), generator=generator)
    second = (place[first] - offset).clamp(torch.zeros_like(size), size - 1)
    pair = tokens[first] - tokens[second[:, 0] * size[1] + second[:, 1]]
    return {
        "absolute place": (tokens[chosen], (place[chosen] + 0.5) / size),
        "distance to the border": (tokens[chosen], border[chosen].float()),
        "relative offset": (pair, (place[first] - second).float()),
    }
