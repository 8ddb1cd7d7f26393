"""Cases of the sweep for relative encodings."""

from __future__ import annotations

from relpos_mm import encodings

from .case import CANVAS, CHANNELS, HEADS, Case
from .relative_formulas import (
    alibi,
    cosine,
    decomposed,
    disentangled,
    dynamic,
    huang,
    log_coord,
    look_here,
    sasa,
    shaw,
    shaw_value,
    table_alone,
    table_entry,
    transformer_xl,
)

CONTEXT = {"embed_dims": CHANNELS, "num_heads": HEADS}
RELATIVE_CASES = {
    "relative bias": Case(
        encodings.RelativeBias,
        {"num_heads": HEADS, "window_size": CANVAS},
        bias=table_entry,
        other_size={},  # a table of a non-square window needs its window named: test_resize.py
    ),
    "relative bias, square window": Case(
        encodings.RelativeBias,
        {"num_heads": HEADS, "window_size": (8, 8)},
        bias=table_entry,
        other_size={"window_size": (5, 9)},
        covering=(8, 8),
    ),
    "relative bias without content": Case(
        encodings.RelativeBias,
        {"num_heads": HEADS, "window_size": CANVAS, "content": False},
        logit=table_alone,
    ),
    "dynamic bias": Case(
        encodings.DynamicBias,
        {**CONTEXT, "hidden": 6},
        bias=dynamic,
        invisible=frozenset({"pos3.2.bias"}),
        relu=True,
    ),
    "dynamic bias, residual": Case(
        encodings.DynamicBias,
        {**CONTEXT, "hidden": 6, "residual": True},
        bias=dynamic,
        invisible=frozenset({"pos3.2.bias"}),
        relu=True,
    ),
    "log coordinates": Case(
        encodings.LogCoordBias,
        {"num_heads": HEADS, "window_size": (7, 5), "hidden": 8},
        bias=log_coord,
        relu=True,
    ),
    "log coordinates, cosine": Case(
        encodings.LogCoordBias,
        {
            "num_heads": HEADS,
            "window_size": CANVAS,
            "pretrained_window_size": (1, 4),
            "hidden": 6,
            "cosine": True,
        },
        logit=cosine,
        coarse=2,  # up to 16, where float16 counts in steps of 1/128
        relu=True,
    ),
    "decomposed, centre": Case(
        encodings.DecomposedBias,
        {**CONTEXT, "window_size": (6, 7), "mode": "centre"},
        logit=decomposed,
        other_size={"window_size": (9, 4)},
    ),
    "decomposed, dense": Case(
        encodings.DecomposedBias,
        {**CONTEXT, "window_size": CANVAS, "mode": "centre", "factored": False},
        logit=decomposed,
        other_size={"window_size": (3, 9)},
    ),
    "shaw": Case(encodings.ShawRelative, {**CONTEXT}, logit=shaw, other_size={"clip": 5}),
    "shaw, cross, values, per head": Case(
        encodings.ShawRelative,
        {**CONTEXT, "clip": (2, 3), "mapping": "cross", "values": True, "shared_heads": False},
        logit=shaw,
        added_value=shaw_value,
        other_size={"clip": (4, 1)},
    ),
    "shaw, values, asymmetric": Case(
        encodings.ShawRelative,
        {**CONTEXT, "clip": 3, "values": True, "asymmetric": True},
        logit=shaw,
        added_value=shaw_value,
        other_size={"clip": 2},
    ),
    "huang": Case(
        encodings.HuangRelative, {**CONTEXT, "clip": 2}, logit=huang, other_size={"clip": 4}
    ),
    "huang, cross, per head": Case(
        encodings.HuangRelative,
        {**CONTEXT, "clip": (1, 4), "mapping": "cross", "shared_heads": False},
        logit=huang,
        other_size={"clip": (3, 3)},
    ),
    "transformer-xl": Case(
        encodings.TransformerXLRelative, {**CONTEXT, "temperature": 20.0}, logit=transformer_xl
    ),
    "transformer-xl, dense": Case(
        encodings.TransformerXLRelative,
        {**CONTEXT, "pos_dims": 12, "factored": False},
        logit=transformer_xl,
    ),
    "sasa": Case(
        encodings.SasaRelative,
        {**CONTEXT, "window_size": (4, 8)},
        logit=sasa,
        other_size={"window_size": (6, 3)},
    ),
    "sasa, per head": Case(
        encodings.SasaRelative,
        {**CONTEXT, "window_size": CANVAS, "shared_heads": False, "factored": False},
        logit=sasa,
        other_size={"window_size": (6, 3)},
    ),
    "sasa, all channels": Case(
        encodings.SasaRelative,
        {**CONTEXT, "window_size": CANVAS, "split": "channels"},
        logit=sasa,
        other_size={"window_size": (8, 9)},
    ),
    "disentangled": Case(
        encodings.Disentangled,
        {**CONTEXT, "bucket_size": 4, "max_distance": 6},
        logit=disentangled,
        invisible=frozenset({"pos_key_proj.bias"}),
    ),
    "disentangled, product, as the paper": Case(
        encodings.Disentangled,
        {
            **CONTEXT,
            "bucket_size": 4,
            "max_distance": 6,
            "mapping": "product",
            "layer_norm": False,
            "p2c_offset": "paper",
        },
        logit=disentangled,
        invisible=frozenset({"pos_key_proj.bias"}),
    ),
    "disentangled, content to position": Case(
        encodings.Disentangled,
        {**CONTEXT, "bucket_size": 4, "max_distance": 6, "p2c": False},
        logit=disentangled,
        invisible=frozenset({"pos_key_proj.bias"}),
    ),
    "alibi": Case(encodings.Alibi2d, {"num_heads": HEADS}, bias=alibi),
    "look here": Case(
        encodings.DirectedDistance, {"num_heads": HEADS, "layer": 1, "depth": 4}, bias=look_here
    ),
    "look here, corners": Case(
        encodings.DirectedDistance,
        {"num_heads": HEADS, "directions": "corners", "undirected": 0},
        bias=look_here,
    ),
}
