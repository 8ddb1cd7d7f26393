"""The text of the start report."""

from __future__ import annotations

from typing import Any

from .cpu_gemm import Route
from .weights import SCRATCH


def report_lines(facts: dict[str, Any]) -> list[str]:
    """Return the report as aligned lines; parts without a fact are left out."""
    rows = [(split, _data(fact)) for split, fact in facts["data"].items()]
    if facts["batch"]:
        rows += _training(facts["batch"], facts["optimiser"])
    counts = facts["parameters"]
    rows.append(("frozen", f"{counts['frozen']:,} of {counts['total']:,} parameters"))
    for part, sources in facts["weights"].items():
        rows.append((f"weights of {part}", _sources(sources)))
    rows += [("weights", note) for note in facts["weight_notes"]]
    encoding = facts["encoding"]
    if encoding["slug"] is not None:
        names = ", ".join(encoding["types"]) or "none"
        size = f"{encoding['modules']} modules, {counts['position']:,} parameters"
        rows.append(("encoding", f"{encoding['slug']} ({names}): {size}"))
    route = facts["cpu_gemm"]
    if route is not None and route["name"] is not None:
        rows.append(("float32 products", str(Route(**route))))
    rows.append(("seed", str(facts["seed"])))
    width = max(len(label) for label, _ in rows)
    return [f"  {label:<{width}}  {text}" for label, text in rows]


def _data(fact: dict[str, Any]) -> str:
    classes = f", {fact['classes']} classes" if fact["classes"] else ""
    origin = f", {fact['from']}" if fact["from"] else ""
    return f"{fact['type']}, {fact['pictures']:,} pictures{classes}{origin}"


def _training(batch: dict[str, Any], optimiser: dict[str, Any]) -> list[tuple[str, str]]:
    accumulated = f" x {batch['accumulation']} accumulated" if batch["accumulation"] > 1 else ""
    recipe = f"; recipe {batch['recipe']}" if batch["recipe"] else ""
    product = f"{batch['per_process']} x {batch['processes']} process(es){accumulated}"
    how = f"scaled by {batch['lr_factor']:g}" if batch["lr_scaled"] else "as in the config"
    decay = f"weight decay on {optimiser['decayed_tensors']} tensors"
    return [
        ("batch", f"{batch['effective']} = {product}{recipe}"),
        ("lr", f"{optimiser['lr']:g} ({how})"),
        (
            "optimiser",
            f"{optimiser['type']}, {optimiser['precision']}, {decay} and none on "
            f"{optimiser['undecayed_tensors']}",
        ),
    ]


def _sources(sources: dict[str, int]) -> str:
    total = sum(sources.values())
    # Files first: what was loaded is the news, the rest follows from it.
    ordered = sorted(sources.items(), key=lambda item: item[0] == SCRATCH)
    return "; ".join(f"{n} of {total} tensors from {source}" for source, n in ordered)
