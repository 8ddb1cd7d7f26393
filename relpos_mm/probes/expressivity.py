"""Which families of functions could replace the bias tables of a trained model."""

from __future__ import annotations

import argparse
from typing import Any, ClassVar

import numpy as np

from relpos_mm.encodings import RelativeBias, position_modules
from relpos_mm.engine.errors import UserError

from .probe import PROBES, Probe
from .record import Curve, Findings
from .subject import Subject
from .table_forms import FORMS, fit_r2, offset_table


@PROBES.register_module("expressivity")
class Expressivity(Probe):
    """Fit functions of the offset to every head's trained table, by least squares on all offsets.

    It separates what a family cannot represent from what it does not learn. The first says nothing
    of how much the model needs what is lost: that is what ``ablate`` measures.
    """

    about: ClassVar[str] = "fit DPB, CPB, separable, low-rank and distance forms to trained tables"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--forms", nargs="+", choices=list(FORMS), default=list(FORMS), help="which to fit"
        )

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        tables = {
            name: module
            for name, module in position_modules(subject.model).items()
            if isinstance(module, RelativeBias)
        }
        if not tables:
            raise UserError(
                f"{subject.checkpoint}: no RelativeBias in the model, so there is no table to fit; "
                "give a model whose position list has one"
            )
        found = Findings()
        scores: dict[str, dict[str, list[float]]] = {form: {} for form in settings["forms"]}
        for name, module in tables.items():
            heads = module.relative_position_bias_table.shape[1]
            table = offset_table(module, module.window_size, heads).cpu()
            for form in settings["forms"]:
                r2 = fit_r2(table, FORMS[form](table, module.window_size))
                scores[form][_short(name)] = r2.tolist()
        for form, by_block in scores.items():
            every = np.concatenate(list(by_block.values()))
            found.numbers[f"{form}, median R2"] = float(np.median(every))
            found.numbers[f"{form}, lowest R2"] = float(every.min())
            found.details[form] = {
                block: {"R2": r2, "relative error": [max(1 - share, 0.0) ** 0.5 for share in r2]}
                for block, r2 in by_block.items()
            }
            medians = [float(np.median(r2)) for r2 in by_block.values()]
            found.curves.append(Curve(form, list(by_block), medians, "stage.block", "R2"))
        found.notes.append(f"{len(every)} heads; medians and lowest values are over heads")
        return found


def _short(name: str) -> str:
    """``backbone.stages.0.blocks.1.attn...`` -> ``1.2``; other hosts keep their numbers."""
    return ".".join(str(int(part) + 1) for part in name.split(".") if part.isdigit())
