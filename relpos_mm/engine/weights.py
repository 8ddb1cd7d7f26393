"""Where the value of every tensor in a model came from: a file or the random generator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor, nn

from relpos_mm.encodings import position_modules
from relpos_mm.encodings.grid import as_size
from relpos_mm.encodings.relative_bias import RelativeBias
from relpos_mm.models import RelPosSwin
from relpos_mm.transfer.encoding_names import (
    option_differences,
    slug_of_configs,
    told_differences,
)
from relpos_mm.transfer.meta import backbone_config, position_config
from relpos_mm.transfer.windows import misread

from .checkpoints import read_checkpoint, weights_of
from .errors import UserError

SCRATCH = "random initial values"
# Every encoding lives under a module of this name, in the backbone or in its blocks.
_POSITION = re.compile(r"(^|\.)position\.")
_NORM = re.compile(r"norm\d\.(weight|bias)")
# Norms of outputs start anew in dense models; older files lack the counters.
_MAY_BE_NEW = re.compile(rf"{_NORM.pattern}|(.*\.)?num_batches_tracked")


@dataclass
class Match:
    """How the tensors of a file fit a model: names of both sides, sorted into kinds."""

    loaded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    wrong_shape: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @property
    def filled(self) -> list[str]:
        return self.loaded + self.resized

    @property
    def position_conflict(self) -> list[str]:
        """Position tensors that only one side has: the encodings differ."""
        return [key for key in self.missing + self.unexpected if _POSITION.search(key)]


def match(model: Mapping[str, Tensor], file: Mapping[str, Tensor]) -> Match:
    """Compare the names and shapes of a model's state with those of a file."""
    result = Match(unexpected=[key for key in file if key not in model])
    for key, tensor in model.items():
        if key not in file:
            result.missing.append(key)
        elif file[key].shape == tensor.shape:
            result.loaded.append(key)
        elif _POSITION.search(key):  # encodings resize their own tables while loading
            result.resized.append(key)
        else:
            result.wrong_shape.append(key)
    return result


def pretrained_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """Yield name, module and init_cfg of every module that starts from a file.

    Raises:
        UserError: Such a module lies inside another one; only the outer file would count.
    """
    outer: str | None = None
    for name, module in model.named_modules():
        entries = getattr(module, "init_cfg", None) or []
        for entry in [entries] if isinstance(entries, Mapping) else entries:
            if entry.get("type") != "Pretrained":
                continue
            if outer is not None and name.startswith(outer):
                raise UserError(
                    f"init_cfg: '{name}' and '{outer.rstrip('.') or 'the model'}' around it both "
                    "start from a file, and the outer one would overwrite the inner; remove one."
                )
            outer = f"{name}." if name else ""
            yield name, module, dict(entry)


class WeightSources:
    """Record, by tensor name, which file filled a model.

    Args:
        model: The bare model, without DDP or test-time-augmentation wrapper.
        allow_position_mismatch: Go on although file and model have different encodings.

    Attributes:
        source: File by tensor name.
        notes: What else the report says about files.
        position_transferred: Whether all encodings came from the files, through every training
            and transfer before this run; None without any file.
    """

    def __init__(self, model: nn.Module, allow_position_mismatch: bool = False) -> None:
        self.model = model
        self.allow_position_mismatch = allow_position_mismatch
        self.source: dict[str, str] = {}
        self.notes: list[str] = []
        self.position_transferred: bool | None = None

    def add_checkpoint(self, path: str, checkpoint: dict[str, Any], whole: bool) -> None:
        """Record a ``load_from``, resumed or tested file before mmengine copies it.

        Args:
            path: The file, for messages.
            checkpoint: What it holds.
            whole: Whether every tensor must come from it, as in a test and a resumed training.

        Raises:
            UserError: No backbone tensor matches, or the encodings differ, or ``whole`` and a
                tensor would be left at a random value.
        """
        file = weights_of(checkpoint)
        found = match(self.model.state_dict(), file)
        self._take("", path, found, checkpoint, file)
        lost = found.missing + found.wrong_shape
        if whole and lost:
            raise UserError(
                f"{path} does not fill this model: {len(lost)} of {len(self.model.state_dict())} "
                f"tensors are missing or of another shape ({_some(lost)}). A test or a resumed "
                "training of a partly random model means nothing; give the config that the file "
                "was trained with."
            )

    def add_init_cfgs(self, verify: bool) -> None:
        """Record the files named by ``init_cfg`` after ``init_weights`` has read them.

        Args:
            verify: Also compare values; False when a later ``load_from`` may have replaced them.

        Raises:
            UserError: No tensor matches, the encodings differ, or the values did not arrive.
        """
        for name, module, entry in list(pretrained_modules(self.model)):
            path, prefix = str(entry["checkpoint"]), (entry.get("prefix") or "").rstrip(".")
            checkpoint = _read_any(path)
            file = weights_of(checkpoint)
            if prefix:
                cut = f"{prefix}."
                file = {k.removeprefix(cut): v for k, v in file.items() if k.startswith(cut)}
            state = module.state_dict()
            found = match(state, file)
            self._take(
                f"{name}." if name else "", path, found, checkpoint, file, replaced=not verify
            )
            stale = [k for k in found.loaded if not _equal(state[k], file[k])] if verify else []
            if stale:
                raise UserError(
                    f"init_cfg of '{name}' names {path}, but its values are not in the model "
                    f"({_some(stale)}); another initialisation came after it."
                )

    def _take(
        self,
        prefix: str,
        path: str,
        found: Match,
        checkpoint: Mapping[str, Any],
        file: Mapping[str, Tensor],
        replaced: bool = False,
    ) -> None:
        """Judge and record one file; ``replaced``: a ``load_from`` came after it."""
        meta: Mapping[str, Any] = checkpoint.get("meta", {})
        keys = [f"{prefix}{key}" for key in found.filled]
        # A file for the whole model must reach the backbone, one for a part must reach that part.
        part = prefix or "backbone."
        wanted = [key for key in self.model.state_dict() if key.startswith(part)]
        if wanted and not any(key.startswith(part) for key in keys):
            raise UserError(
                f"{path} fills 0 of {len(wanted)} tensors of {part.rstrip('.')}, so they would "
                f"stay at random values. Its names look like {_some(found.unexpected)}. Bring it "
                "into this model's layout with tools/transfer.py."
            )
        self._refuse_holes(path, prefix, part, found)
        self._refuse_windows(path, prefix, checkpoint, file)
        transfer = meta.get("transfer") or {}
        # The transfer tool asks for the same consent; nobody has to give it twice.
        allowed = self.allow_position_mismatch or transfer.get("encoding_mismatch_allowed")
        if found.position_conflict and not allowed:
            raise UserError(
                f"The position encodings of {path} and of this config differ: only one of them has "
                f"{_some(found.position_conflict)}. Use the config that belongs to the file, or "
                "set allow_position_mismatch=True on StartReportHook to start these at random."
            )
        stated = self._stated_difference(checkpoint)
        if stated and not allowed:
            raise UserError(
                f"The position encodings of {path} and of this config differ: {stated}. Use the "
                "config that belongs to the file, or set allow_position_mismatch=True on "
                "StartReportHook."
            )
        earlier = transfer.get("position_transferred", meta.get("position_transferred"))
        if found.position_conflict or stated or earlier is False:
            self.position_transferred = False
        elif self.position_transferred is None:
            self.position_transferred = True
        label = f"{path} (made from {transfer['source']})" if "source" in transfer else path
        for key in keys:
            if not (replaced and key in self.source):
                self.source[key] = label
        for kind in ("resized", "wrong_shape", "unexpected", "position_conflict"):
            if names := getattr(found, kind):
                what = "encoding differs, not transferred" if kind == "position_conflict" else kind
                self.notes.append(f"{what.replace('_', ' ')}: {len(names)} ({_some(names)})")

    def _refuse_holes(self, path: str, prefix: str, part: str, found: Match) -> None:
        """Refuse a file that leaves holes in a backbone; tell which norms of outputs are new.

        Raises:
            UserError: They are missing in the file, or have another shape there.
        """
        missing, wrong = (
            [prefix + key for key in keys if (prefix + key).startswith(part)]
            for keys in (found.missing, found.wrong_shape)
        )
        holes = [
            key
            for key in missing
            if not (_POSITION.search(key) or _MAY_BE_NEW.fullmatch(key.removeprefix(part)))
        ]
        filled = [prefix + key for key in found.filled]
        carried, new = (
            [key for key in keys if _NORM.fullmatch(key.removeprefix(part))]
            for keys in (filled, missing)
        )
        if carried and new:
            self.notes.append(
                f"output norms: {_some(carried)} from the file, which is a classifier's final norm "
                f"(tools/transfer.py leaves it out); {len(new)} start at weight 1 and bias 0"
            )
        if wrong:
            shape = tuple(self.model.state_dict()[wrong[0]].shape)
            shapes = f"{wrong[0]} is {shape} in this config"
            raise UserError(
                f"{path}: {len(wrong)} tensors of {part.rstrip('.')} have another shape ({shapes}) "
                "and would stay at random values. Set embed_dims, num_heads, mlp_ratio and "
                "patch_size to the file's; tools/transfer.py --inspect shows them."
            )
        if holes:
            raise UserError(
                f"{path}: {len(holes)} tensors of {part.rstrip('.')} are not in it and would stay "
                f"at random values ({_some(holes)}). Set depths and qkv_bias to the file's; "
                "tools/transfer.py --inspect shows them."
            )

    def _refuse_windows(
        self, path: str, prefix: str, checkpoint: Mapping[str, Any], file: Mapping[str, Tensor]
    ) -> None:
        """Refuse bias tables that loading would misread, as their rows do not tell their window.

        Raises:
            UserError: There is such a table.
        """
        stated = backbone_config(checkpoint).get("window_size")
        window = None if stated is None else as_size("window_size of the file", stated)
        for at, swin in self.model.named_modules():
            if not isinstance(swin, RelPosSwin):
                continue
            for name, module in position_modules(swin).items():
                key = f"{at}.{name}.relative_position_bias_table".lstrip(".")
                table = file.get(key.removeprefix(prefix))
                if not isinstance(module, RelativeBias) or table is None:
                    continue
                if why := misread(len(table), module.window_size, window):
                    raise UserError(
                        f"{path}: {key}: {why}. Take the config that belongs to the file, or bring "
                        "the file to this one: tools/transfer.py FILE OUT --config CONFIG, with "
                        "--window H W where the file has no config inside."
                    )

    def _stated_difference(self, checkpoint: Mapping[str, Any]) -> str:
        """Both encodings where the file states its own and they differ, tensors or not."""
        stated = position_config(checkpoint)
        host: Any = next((m for m in self.model.modules() if hasattr(m, "position_cfg")), None)
        if stated is None or host is None:
            return ""
        theirs, ours = slug_of_configs(stated), slug_of_configs(host.position_cfg)
        if theirs != ours:
            return f"{theirs} there, {ours} here"
        by_type = {str(cfg["type"]): cfg for cfg in host.position_cfg}
        told = [
            f"{name} has {told_differences(differences)}"
            for cfg in stated
            if (name := str(cfg["type"])) in by_type
            and (differences := option_differences(cfg, by_type[name], complete=True))
        ]
        return "; ".join(told)

    def by_part(self) -> dict[str, dict[str, int]]:
        """Return, for every child of the model, how many tensors came from which source."""
        parts: dict[str, dict[str, int]] = {}
        for key in self.model.state_dict():
            part = parts.setdefault(key.split(".")[0], {})
            label = self.source.get(key, SCRATCH)
            part[label] = part.get(label, 0) + 1
        return parts


def _read_any(path: str) -> dict[str, Any]:
    if "://" in path:
        return CheckpointLoader.load_checkpoint(path, "cpu")
    return read_checkpoint(Path(path).expanduser())


def _equal(loaded: Tensor, stored: Tensor) -> bool:
    stored = stored.to(loaded)
    return torch.equal(loaded, stored) or bool(torch.isnan(stored).any())


def _some(names: list[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more if names else "nothing"
