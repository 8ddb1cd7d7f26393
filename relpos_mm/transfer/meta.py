"""What a training checkpoint says about its own backbone, read without running its config."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def backbone_config(checkpoint: Any) -> dict[str, Any]:
    """The backbone's config that a checkpoint states; empty where there is none.

    A file of ours holds it under ``meta["transfer"]``. In mmengine's files ``meta["cfg"]`` is
    Python text. It is parsed, never executed: only literals and ``dict()`` calls are read.
    """
    meta = checkpoint.get("meta") if isinstance(checkpoint, Mapping) else None
    if not isinstance(meta, Mapping):
        return {}
    if isinstance(meta.get("transfer"), Mapping) and "backbone" in meta["transfer"]:
        return dict(meta["transfer"]["backbone"])
    text = meta.get("cfg")
    if not isinstance(text, str):
        return {}
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return {}
    for node in body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if isinstance(node, ast.Assign) and names == ["model"]:
            try:
                backbone = _literal(node.value).get("backbone")
            except (ValueError, AttributeError):
                return {}
            ours = isinstance(backbone, dict) and backbone.get("type") == "RelPosSwin"
            return backbone if ours else {}
    return {}


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        if node.args or any(word.arg is None for word in node.keywords):
            raise ValueError("dict() with anything but names")
        return {word.arg: _literal(word.value) for word in node.keywords}
    if isinstance(node, ast.Dict):
        keys = [None if key is None else _literal(key) for key in node.keys]
        return dict(zip(keys, map(_literal, node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    return ast.literal_eval(node)
