"""Whether a picture's result depends on the padding that its batch mates cause."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from relpos_mm.encodings.grid import Size
from relpos_mm.engine.options import count

from .outcome import outcome_change
from .placing import Placing, change, predict, stage_outputs, strides, swin_of
from .probe import PROBES, Probe
from .record import Curve, Findings
from .subject import Subject


@PROBES.register_module("padding")
class Padding(Probe):
    """One picture alone, and as the smaller one of batches that a larger mate pads.

    In evaluation pictures of a batch meet in no other way than through the size of the canvas, so
    the mate itself is left out. Detectors of this project tell the backbone the picture's size.
    """

    about: ClassVar[str] = "a picture alone and in larger padded batches: do the results differ?"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--extra",
            type=count,
            nargs="+",
            default=[32, 64, 128, 256],
            metavar="PX",
            help="padding to the right and at the bottom",
        )
        parser.add_argument("--pictures", type=count, default=16, help="of the test set")

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        found, metric, pictures = Findings(), subject.metric, settings["pictures"]
        alone = observe(subject, 0, pictures)
        rows: list[dict[str, float | None]] = []
        for extra in settings["extra"]:
            padded = observe(subject, extra, pictures)
            row: dict[str, float | None] = {
                f"stage {stage}, change": float(np.mean([change(*pair) for pair in pairs]))
                for stage, pairs in enumerate(_by_stage(alone.maps, padded.maps), 1)
            }
            row |= outcome_change(alone.samples, padded.samples)
            scores = alone.metrics[metric], padded.metrics[metric]
            row[f"{metric}, padded minus alone"] = (
                None if None in scores else scores[1] - scores[0]  # type: ignore[operator]
            )
            rows.append(row)
        found.numbers = {f"{metric}, alone": alone.metrics[metric]}
        found.numbers |= {f"{name}, +{settings['extra'][-1]} px": v for name, v in rows[-1].items()}
        for name in rows[-1]:
            y_label = "relative change" if name.startswith("stage") else name.split(", ")[-1]
            values = [row[name] for row in rows]
            found.curves.append(Curve(name, settings["extra"], values, "padding, px", y_label))
        if subject.task == "classification":
            found.notes.append(
                "classifiers are never given padded pictures: the change includes that the mean "
                "over all tokens takes the padding in"
            )
        return found


def _by_stage(one: list[list[Tensor]], other: list[list[Tensor]]) -> list[list[Any]]:
    """Return, per stage, the pairs of maps of every picture."""
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(one, other, strict=True)]
    return [list(stage) for stage in zip(*pairs, strict=True)]


@dataclass
class Observed:
    """What a model did with some pictures.

    Attributes:
        maps: Per picture, the output of every stage ``(C, H, W)`` within the picture.
        samples: Per picture, the library's prediction.
        metrics: Of the config's evaluator over these pictures.
    """

    maps: list[list[Tensor]] = field(default_factory=list)
    samples: list[Any] = field(default_factory=list)
    metrics: dict[str, float | None] = field(default_factory=dict)


def observe(subject: Subject, extra: int, count: int) -> Observed:
    """Let a model see some test pictures with ``extra`` pixels of padding, and evaluate it."""
    backbone, seen = swin_of(subject), Observed()

    def padded(size: Size) -> Placing:
        return Placing(canvas=(size[0] + extra, size[1] + extra), padding=True)

    def look(batch: dict[str, Any]) -> list[Any]:
        with stage_outputs(backbone) as maps:
            sample = predict(subject.model, batch, padded)
        stages = zip(maps, strides(backbone), strict=True)
        height, width = sample.img_shape
        seen.maps.append([m[0, :, : -(-height // s), : -(-width // s)] for m, s in stages])
        seen.samples.append(sample)
        return [sample]

    seen.metrics = subject.score(look, count)
    return seen
