"""The registry of position encodings and the one function that builds a ``position`` list."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import torch
from mmengine.registry import Registry

if TYPE_CHECKING:
    from relpos_mm.encodings.base import PositionEncoding

# What the tokens of a place have, whatever a config says. Windows and grids are not among it: a
# table may cover more than its host reads.
_OF_THE_HOST = ("embed_dims", "num_heads", "prefix_tokens", "shifted")

POSITIONS = Registry("position encoding", scope="relpos_mm", locations=["relpos_mm.encodings"])


def encoding_class(cfg: Mapping[str, Any]) -> type[PositionEncoding]:
    """Return the class that ``cfg["type"]`` names.

    Raises:
        ValueError: ``cfg`` has no ``type``, or no encoding of that name is registered.
    """
    if not isinstance(cfg, Mapping) or "type" not in cfg:
        raise ValueError(f"position: every entry is a dict with a 'type', got {cfg!r}")
    found = POSITIONS.module_dict.get(cfg["type"]) if isinstance(cfg["type"], str) else None
    if found is None:
        names = sorted(POSITIONS.module_dict)
        near = get_close_matches(str(cfg["type"]), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
        raise ValueError(f"position: no encoding is called {cfg['type']!r}; {hint}")
    return found


def position_list(owner: str, position: object) -> list[dict[str, Any]]:
    """Return the ``position`` list of a model as dicts of its own.

    Raises:
        ValueError: It is no list, or an entry names no encoding; the first message says whose list.
    """
    if not isinstance(position, Sequence) or isinstance(position, str):
        raise ValueError(
            f"{owner}: position must be a list of dicts ([] is no encoding), got {position!r}"
        )
    for cfg in position:
        encoding_class(cfg)
    return [dict(cfg) for cfg in position]


def site_of(cfg: Mapping[str, Any]) -> str:
    """Return where the encoding of ``cfg`` acts (``stem``, ``block`` or ``qk_input``)."""
    return cfg.get("site", encoding_class(cfg).site)


def build_positions(cfgs: Iterable[Mapping[str, Any]], **context: Any) -> list[PositionEncoding]:
    """Build the encodings of a ``position`` list for one place in a model.

    Args:
        cfgs: One dict per encoding: ``type`` plus its keyword arguments.
        **context: What the host knows of the place (``embed_dims``, ``num_heads``,
            ``window_size``, ``grid_size``, ``layer``, ``depth``). Each encoding receives those that
            its constructor names; an argument given in the dict wins, but cannot contradict what
            the host's tokens have.

    Raises:
        ValueError: An unknown type or argument, a missing argument, one that the host contradicts,
            or the same encoding twice.

    Initial values are drawn from a copy of the random state. The rest of the model therefore
    starts from the same values whatever encodings are listed, as paired seeds of a study need.
    """
    built: list[PositionEncoding] = []
    for cfg in cfgs:
        cls = encoding_class(cfg)
        given = {key: value for key, value in cfg.items() if key != "type"}
        accepted = set(inspect.signature(cls).parameters)
        unknown = sorted(set(given) - accepted)
        if unknown:
            raise ValueError(
                f"position: {cfg['type']} has no argument {', '.join(map(repr, unknown))}; "
                f"it takes {', '.join(sorted(accepted))}"
            )
        _refuse_contradictions(given, context, cfg["type"])
        arguments = {key: context[key] for key in accepted & context.keys()} | given
        try:
            inspect.signature(cls).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"position: {cfg['type']}: {error}") from None
        with torch.random.fork_rng(devices=[]):
            encoding = cls(**arguments)
        if any(other.name == encoding.name for other in built):
            raise ValueError(f"position: {cfg['type']} stands twice in the list; keep one of them")
        built.append(encoding)
    return built


def _refuse_contradictions(
    given: Mapping[str, Any], context: Mapping[str, Any], owner: str
) -> None:
    for name in _OF_THE_HOST:
        # A model with prefix tokens may leave them without a vector.
        fits = (context.get(name), 0) if name == "prefix_tokens" else (context.get(name),)
        if name in given and name in context and given[name] not in fits:
            raise ValueError(
                f"position: {owner}: {name}={given[name]!r}, but the model has {context[name]!r} "
                "here; leave it out, the model fills it in"
            )
