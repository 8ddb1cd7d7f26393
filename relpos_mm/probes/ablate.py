"""What the position parameters of a trained model are worth to it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from relpos_mm.encodings import PositionEncoding, position_modules
from relpos_mm.engine.checkpoints import read_checkpoint, weights_of
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import count
from relpos_mm.engine.weights import WeightSources

from .probe import PROBES, Probe
from .record import Curve, Findings
from .subject import Subject

Change = Callable[[Tensor, torch.Generator], Tensor]

# Tensors whose first axis runs over offsets or buckets; maps (.., .., H, W) show by their shape.
_TABLES = (
    *("relative_position_bias_table", "table", "rel_pos_h", "rel_pos_w"),
    *("rel_embeddings_h", "rel_embeddings_w"),
)


def places_last(name: str, tensor: Tensor) -> Tensor:
    """View a position parameter as ``(channels, places)``.

    Maps and kernels have a place per pixel, tables one per row. Of everything else, such as the
    layers of a bias network, each entry counts as a place.
    """
    if tensor.ndim == 4:
        return tensor.flatten(2).flatten(0, 1)
    if tensor.ndim == 2 and name.rpartition(".")[2] in _TABLES:
        return tensor.t()
    return tensor.reshape(1, -1)


def _zero(places: Tensor, generator: torch.Generator) -> Tensor:
    return torch.zeros_like(places)


def _permute(places: Tensor, generator: torch.Generator) -> Tensor:
    order = torch.randperm(places.shape[1], generator=generator)
    return places[:, order.to(places.device)]


def _mean(places: Tensor, generator: torch.Generator) -> Tensor:
    return places.mean(dim=1, keepdim=True).expand_as(places)


#: What may be done to a tensor ``(channels, places)``; only ``permute`` draws random numbers.
METHODS: dict[str, Change] = {"zero": _zero, "permute": _permute, "mean": _mean}


@contextmanager
def changed(encodings: Sequence[PositionEncoding], change: Change, seed: int = 0) -> Iterator[None]:
    """Change all parameters of some encodings, and give them their values back at the end."""
    generator = torch.Generator().manual_seed(seed)
    kept: dict[nn.Parameter, Tensor] = {}
    with torch.no_grad():
        for encoding in encodings:
            for name, parameter in encoding.named_parameters():
                kept[parameter] = parameter.clone()
                # A view, so that what is written there arrives in the parameter's own layout.
                view = places_last(name, parameter)
                view.copy_(change(view.clone(), generator))
        try:
            yield
        finally:
            for parameter, values in kept.items():
                parameter.copy_(values)


@contextmanager
def given(encodings: dict[str, PositionEncoding], donor: str) -> Iterator[None]:
    """Give encodings the values of another checkpoint, resized where needed, and back again.

    Raises:
        UserError: The checkpoint lacks some of them.
    """
    weights = weights_of(read_checkpoint(donor))
    own = {name: {k: v.clone() for k, v in e.state_dict().items()} for name, e in encodings.items()}
    absent = [f"{n}.{k}" for n, state in own.items() for k in state if f"{n}.{k}" not in weights]
    if absent:
        raise UserError(f"--donor: {donor} has no {absent[0]}; give a file of the same encoding")
    try:
        for name, encoding in encodings.items():
            encoding.load_state_dict({key: weights[f"{name}.{key}"] for key in own[name]})
        yield
    finally:
        for name, encoding in encodings.items():
            encoding.load_state_dict(own[name])


def _require_same(model: nn.Module, donor: str) -> None:
    """Refuse a donor whose values were learnt beside other encodings, or in another network.

    Raises:
        UserError: Its encodings differ from the model's, or it does not fit the backbone.
    """
    try:
        WeightSources(model).add_checkpoint(donor, read_checkpoint(donor), whole=False)
    except UserError as error:
        raise UserError(f"--donor: {error}") from None


@PROBES.register_module("ablate")
class Ablate(Probe):
    """Zero the position parameters, permute their places, or set all places to the mean.

    Each encoding of the model is treated alone; differences are to the intact model on the same
    pictures. An encoding without parameters has nothing to change and is named in the notes.
    """

    about: ClassVar[str] = "zero, permute or replace position parameters, and evaluate again"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="what to do"
        )
        parser.add_argument("--draws", type=count, default=3, help="random orders of permute")
        parser.add_argument("--donor", help="also take the values of this checkpoint")
        parser.add_argument("--pictures", type=count, help="only so many (default: the test set)")

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        encodings = position_modules(subject.model)
        if not any(True for encoding in encodings.values() for _ in encoding.parameters()):
            what = "no position encoding with parameters" if encodings else "no position encoding"
            raise UserError(
                f"{subject.checkpoint}: {what} in the model, so there is nothing to change; give a "
                "model whose position list has one"
            )
        if settings["donor"]:
            _require_same(subject.model, settings["donor"])
        metric, pictures = subject.metric, settings["pictures"]
        found = Findings(details={"intact": subject.score(count=pictures)})
        intact = found.details["intact"][metric]
        found.numbers[f"{metric}, intact"] = intact
        groups: dict[str, dict[str, PositionEncoding]] = {}
        for name, encoding in encodings.items():
            groups.setdefault(encoding.name, {})[name] = encoding
        for kind, modules in groups.items():
            if not any(True for m in modules.values() for _ in m.parameters()):
                found.notes.append(f"{kind} has no parameters, so nothing of it can be changed")
                continue
            scores: dict[str, list[float | None]] = {}
            for method in settings["methods"]:
                draws = settings["draws"] if method == "permute" else 1
                scores[method] = []
                for seed in range(draws):
                    with changed(list(modules.values()), METHODS[method], seed):
                        scores[method].append(subject.score(count=pictures)[metric])
            if settings["donor"]:
                with given(modules, settings["donor"]):
                    scores["donor"] = [subject.score(count=pictures)[metric]]
            _note(found, metric, kind, intact, scores)
        return found


def _note(
    found: Findings,
    metric: str,
    kind: str,
    intact: float | None,
    scores: dict[str, list[float | None]],
) -> None:
    """Add the difference of every method, the mean over its draws, to the findings."""
    means: dict[str, float | None] = {"intact": intact}
    for method, values in scores.items():
        there = [value for value in values if value is not None]
        mean = means[method] = float(np.mean(there)) if there else None
        difference = None if mean is None or intact is None else mean - intact
        found.numbers[f"{metric}, {kind} {method} minus intact"] = difference
    found.details[kind] = scores
    found.curves.append(
        Curve(metric, list(means), list(means.values()), "position parameters", metric, kind)
    )
