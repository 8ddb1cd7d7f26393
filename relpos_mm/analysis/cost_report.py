"""Costs as a table, and the record behind the pages of docs/encodings/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .catalogue import CATALOGUE
from .cost import Cost, bare_cost, model_cost
from .tables import markdown_table

_NOTE = (
    "GMAC and memory are those of one picture in the part that takes encodings (backbone, or "
    "DETR's encoder); papers call GMAC GFLOPs. '+' is the difference to the same part without "
    "encodings."
)
# The two places where encodings are compared: windows, and one global grid.
_HOSTS: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "Swin-T, 224 x 224": ({"type": "RelPosSwin"}, (224, 224)),
    "DETR encoder layer, 800 x 1333": (
        {"type": "RelPosDetrEncoder", "num_layers": 1},
        (800, 1333),
    ),
}


def cost_table(costs: Iterable[Cost]) -> str:
    """Return a table of configs, in Markdown."""
    header = ["config", "encoding", "host", "picture", "params M", "position params", "GMAC"]
    header += ["+ GMAC", "memory MiB", "+ MiB", "attention"]
    rows = [
        [
            cost.config,
            cost.encoding,
            cost.host,
            f"{cost.size[0]}x{cost.size[1]}",
            f"{cost.params / 1e6:.2f}",
            _parameters(cost.by_encoding),
            f"{cost.gmac:.3f}",
            f"{cost.extra_gmac:.4f}",
            f"{cost.activation_mib:.0f}",
            f"{cost.extra_mib:.1f}",
            ", ".join(cost.kernels),
        ]
        for cost in costs
    ]
    return f"{markdown_table(header, rows)}\n\n{_NOTE}"


def catalogue_costs(names: Iterable[str] = CATALOGUE) -> dict[str, dict[str, dict[str, Any]]]:
    """Cost of every catalogue name in every host, as plain values for a json file."""
    result: dict[str, dict[str, dict[str, Any]]] = {}
    bare = {host: bare_cost(model, size) for host, (model, size) in _HOSTS.items()}
    for name in names:
        for host, (model, size) in _HOSTS.items():
            cfg = {**model, "position": [dict(entry) for entry in CATALOGUE[name]]}
            cost = model_cost(cfg, size, name, bare[host])
            result.setdefault(name, {})[host] = {
                "position_params": cost.position_params,
                "gmac": round(cost.gmac, 4),
                "extra_gmac": round(cost.extra_gmac, 6),
                "extra_mib": round(cost.extra_mib, 2),
                "kernels": list(cost.kernels),
            }
    return result


def page_table(record: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the table of some catalogue names for a page."""
    header = ["setting", "host", "parameters", "+ MMAC", "%", "+ MiB kept", "attention"]
    rows = []
    for name in names:
        for host, cost in record[name].items():
            extra = cost["extra_gmac"]
            rows.append(
                [
                    name,
                    host,
                    f"{cost['position_params']:,}",
                    f"{extra * 1e3:.1f}",
                    f"{100 * extra / (cost['gmac'] - extra):.2f}",
                    f"{cost['extra_mib']:.1f}",
                    ", ".join(cost["kernels"]),
                ]
            )
    return markdown_table(header, rows)


def _parameters(by_encoding: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in by_encoding.items()) or "0"
