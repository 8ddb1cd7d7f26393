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
    stated = _transfer_facts(checkpoint).get("backbone")
    if stated is None:
        stated = _model(checkpoint).get("backbone")
        stated = stated if isinstance(stated, dict) and stated.get("type") == "RelPosSwin" else {}
    return dict(stated)


def position_config(checkpoint: Any) -> list[dict[str, Any]] | None:
    """The encodings that a file of ours states, whatever its network; None where it does not."""
    facts = _transfer_facts(checkpoint)
    stated = facts.get("position", dict(facts.get("backbone") or {}).get("position"))
    if stated is None:
        model = _model(checkpoint)
        host = model.get("encoder" if model.get("type") == "RelPosDETR" else "backbone")
        stated = host.get("position") if isinstance(host, dict) else None
    return None if stated is None else [dict(cfg) for cfg in stated]


def _transfer_facts(checkpoint: Any) -> Mapping[str, Any]:
    facts = _meta(checkpoint).get("transfer")
    return facts if isinstance(facts, Mapping) else {}


def _meta(checkpoint: Any) -> Mapping[str, Any]:
    meta = checkpoint.get("meta") if isinstance(checkpoint, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def _model(checkpoint: Any) -> dict[str, Any]:
    """The literal ``model = dict(...)`` of the config text inside a checkpoint, or nothing."""
    text = _meta(checkpoint).get("cfg")
    if not isinstance(text, str):
        return {}
    try:
        body = ast.parse(text).body
        for node in body:
            names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
            if isinstance(node, ast.Assign) and names == ["model"]:
                model = _literal(node.value)
                return model if isinstance(model, dict) else {}
    except (SyntaxError, ValueError, RecursionError):
        pass
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
