"""The test protocol that a config states must be the one that its pipelines carry out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from .pipelines import innermost_dataset
from .problem import Problem


def check_protocol(path: Path, config: Config) -> list[Problem]:
    """Refuse a stated test protocol that the test pipeline does not carry out."""
    problems = []
    for name, pipeline in (("protocol", _test_pipeline(config)), ("tta_protocol", _tta(config))):
        stated = config.get(name)
        if stated is None:
            continue
        for key, done in _carried_out(pipeline).items():
            if key in stated and _plain(stated[key]) != _plain(done):
                problems.append(
                    Problem(
                        path,
                        f"{name}.{key}",
                        stated[key],
                        f"the test pipeline does {done}",
                        "Make both say the same: results are compared by their protocol",
                    )
                )
    return problems


def _test_pipeline(config: Config) -> list[list[dict[str, Any]]]:
    loader = config.get("test_dataloader")
    dataset = innermost_dataset(loader["dataset"]) if loader else {}
    return [[transform] for transform in dataset.get("pipeline", [])]


def _tta(config: Config) -> list[list[dict[str, Any]]]:
    """Return the alternatives at each place of the test-time augmentation."""
    places: list[list[dict[str, Any]]] = []
    for transform in config.get("tta_pipeline") or []:
        inner = transform["transforms"] if transform["type"] == "TestTimeAug" else [[transform]]
        places.extend(inner)
    return places


def _carried_out(places: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return what a pipeline does, in the words of a ``protocol`` dict."""
    done: dict[str, Any] = {"flip": False}
    for place in places:
        kind = place[0]["type"]
        if kind == "Resize":
            scales = [t.get("scale", f"x {t.get('scale_factor')}") for t in place]
            if scales != ["x 1.0"]:  # a picture tested at its own size has no scale to state
                done["scales"] = scales
        elif kind == "ResizeEdge":
            done["resize_short_px"] = place[0]["scale"]
            done["interpolation"] = place[0].get("interpolation", "bilinear")
        elif kind == "CenterCrop":
            done["crop_px"] = place[0]["crop_size"]
        elif kind == "RandomFlip":
            done["flip"] = any(transform.get("prob") for transform in place)
    return done


def _plain(value: Any) -> Any:
    """Return lists for tuples, so that both spellings compare equal."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
