"""Brings a file's weights to the shapes of a built backbone, or says why that is impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.utils import to_2tuple
from torch import Tensor

from relpos_mm.encodings import PositionEncoding, position_modules
from relpos_mm.encodings.log_coord_bias import LogCoordBias
from relpos_mm.encodings.relative_bias import RelativeBias
from relpos_mm.transfer import permute
from relpos_mm.transfer.conversions import convert_encodings
from relpos_mm.transfer.encoding_names import (
    config_by_keys,
    encoding_of_key,
    encodings_of_keys,
    option_differences,
    slug_of_configs,
    told_differences,
)
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import RELPOS
from relpos_mm.transfer.options import Options
from relpos_mm.transfer.report import Outcome, Report
from relpos_mm.transfer.source import Weights
from relpos_mm.transfer.target import Target
from relpos_mm.transfer.values import precision_note, value_fault
from relpos_mm.transfer.windows import window_doubt

_ABSOLUTE = RELPOS.names["absolute"]
_TABLE = "relative_position_bias_table"


class Fit:
    """One attempt to fill a backbone from a file.

    Args:
        weights: the file's content.
        target: the config's backbone.
        options: the user's choices.
        stated: backbone config that the file states of itself; may be empty.
        report: receives every tensor of both sides once; problems in it refuse the transfer.
    """

    def __init__(
        self,
        weights: Weights,
        target: Target,
        options: Options,
        stated: Mapping[str, Any],
        report: Report,
    ) -> None:
        self.weights, self.target, self.options = weights, target, options
        self.stated, self.report = stated, report
        self.state = dict(weights.backbone)
        shapes = target.backbone.state_dict().items()
        self.wanted = {key: tuple(value.shape) for key, value in shapes}
        self.file_encodings = encodings_of_keys(self.state)
        self._varied: set[str] = set()
        self._settled: set[str] = set()
        self._window_fits = False

    def run(self) -> dict[str, Tensor]:
        """Sort, resize and check; returns the state of the backbone, without prefix."""
        self._put_away_norms()
        self._put_away_stages()
        self._compare_encodings()
        if _ABSOLUTE in self.wanted:
            self.unflatten()
        for name, module in position_modules(self.target.backbone).items():
            self._resize(f"{name}.", module)
        if self.options.window and not self._window_fits:
            reason = f"{self.options.window} is the window of none of the file's tables"
            self.report.add("problem", ["--window"], reason)
        self._compare_heads()
        for key in [key for key in self.state if key not in self.wanted]:
            varied = encoding_of_key(key) in self._varied and self.options.allow_encoding_mismatch
            reason = "the config has no such block or layer (depths)"
            if varied:
                reason = "the config's encoding has no such table"
            self.put_away(key, "dropped" if varied else "problem", reason)
        for key, shape in self.wanted.items():
            if key not in self._settled:
                self._settle(key, shape)
        reason = "unknown tensor inside the file's backbone, so this is another network"
        self.report.add("problem", self.weights.unknown, reason)
        for key, why in self.weights.dropped.items():
            self.report.add("dropped", [key], why)
        return self.state

    def record(self, key: str, outcome: Outcome, reason: str) -> None:
        """Record the outcome of one of the model's tensors."""
        self._settled.add(key)
        self.report.add(outcome, [self.target.prefix + key], reason)

    def put_away(self, key: str, outcome: Outcome, reason: str) -> None:
        """Take a tensor of the file out of the transfer."""
        del self.state[key]
        origin = self.weights.origin[key]
        if key in self.wanted and origin == self.target.prefix + key:
            return  # both sides use this name: it is listed once, as the model's
        self.report.add(outcome, [origin], reason)

    def _put_away_norms(self) -> None:
        from_classifier, to_classifier = self.weights.kind == "classifier", self.target.classifier
        kept = from_classifier == to_classifier
        kept |= from_classifier and self.options.keep_final_norm
        for key in self.weights.stage_norms:
            if not kept and from_classifier:
                self.put_away(key, "dropped", "a classifier's final norm (--keep-final-norm)")
            elif not kept:
                self.put_away(key, "dropped", "output norm of a dense model")
            elif key not in self.wanted:
                self.put_away(key, "dropped", "the config has no such output (out_indices)")
        reason = "output norm, starts at weight 1 and bias 0"
        if from_classifier and not kept:
            reason += " (--keep-final-norm carries a classifier's)"
        for key in self.wanted:
            if RELPOS.templates["stage_norm"].match(key) and key not in self.state:
                self.record(key, "new", reason)

    def _put_away_stages(self) -> None:
        built, all_stages = len(self.target.backbone.stages), len(self.target.backbone.num_features)
        for key in list(self.state):
            role, fields = RELPOS.role_of(key) or ("", {})
            stage = int(fields.get("i", -1))
            merge_behind = role.startswith("merge_") and stage == built - 1
            if built < all_stages and (built <= stage < all_stages or merge_behind):
                reason = "behind the last output of the config (out_indices)"
                self.put_away(key, "dropped", reason)

    def _compare_encodings(self) -> None:
        """Refuse other encodings than the file's, or carry out the permission to go on."""
        report, allowed = self.report, self.options.allow_encoding_mismatch
        model = encodings_of_keys(self.wanted)
        configured = {str(cfg["type"]): cfg for cfg in self.target.backbone.position_cfg}
        in_file = file_encodings(self.weights, self.stated)
        silent = self.weights.layout is RELPOS and "position" not in self.stated
        if silent and "RelativeBias" in configured.keys() & in_file.keys():
            in_file["RelativeBias"] = configured["RelativeBias"]  # the content term has no tensor
        unseen = configured.keys() - model.keys() - in_file.keys()
        if unseen and silent:
            in_file |= {name: configured[name] for name in unseen}
            reason = "has no tensors, and the file does not say whether it was trained with it"
            report.add("new", sorted(unseen), reason)
        report.file_encoding = slug_of_configs(in_file.values())
        hint = convert_encodings(self, in_file, configured)
        stated = {str(cfg["type"]) for cfg in self.stated.get("position", [])}
        both = in_file.keys() & configured.keys()
        options = {
            name: option_differences(in_file[name], configured[name], complete=name in stated)
            for name in both
        }
        self._varied = {name for name in both if options[name]}
        report.other_options = sorted(self._varied)
        differ = in_file.keys() ^ configured.keys()
        if not differ | self._varied:
            return
        report.encoding_mismatch_allowed = allowed
        sides = f"the file has {report.file_encoding}, the config wants {report.config_encoding}"
        sides += hint
        for name in sorted(self._varied):
            why = f"{sides} ({told_differences(options[name])})"
            report.add("new" if allowed else "problem", [f"position {name}"], why)
        for name in sorted(differ):
            why = f"{name}: {sides}"
            for key in self.file_encodings.get(name, []):
                self.put_away(key, "dropped" if allowed else "problem", why)
            for key in model.get(name, []):
                self.record(key, "new" if allowed else "problem", f"not in the file, {why}")
            if name not in model and name not in self.file_encodings:
                # an encoding without tensors
                report.add("new" if allowed else "problem", [f"position {name}"], why)

    def _compare_heads(self) -> None:
        """Heads show in tables; without tables only the file's own config can tell them."""
        heads = [stage.blocks[0].attn.num_heads for stage in self.target.backbone.stages]
        stated = list(self.stated.get("num_heads", heads))[: len(heads)]
        if stated != heads and "RelativeBias" not in self.file_encodings:
            reason = f"{stated} in the file's own config, {heads} in this one; set num_heads"
            self.report.add("problem", ["num_heads"], reason)

    def unflatten(self) -> None:
        """Give a flat absolute embedding its grid: from the options, the file's config, or ours."""
        table = self.state.get(_ABSOLUTE)
        if table is None:
            return
        grid, skip = self.options.grid, self.options.prefix_tokens
        if table.ndim == 4 and grid not in (None, tuple(table.shape[2:])):
            reason = f"--grid {grid} contradicts the shape {tuple(table.shape)} in the file"
            self.fail(_ABSOLUTE, reason)
            return
        if grid is None and "pretrain_img_size" in self.stated:
            grid = _token_grid(self.stated)
        own = _token_grid(self.target.config)
        try:
            self.state[_ABSOLUTE] = permute.absolute_to_map(table, grid or own, skip)
        except TransferError as error:
            source = "given" if grid else "the config's (pretrain_img_size)"
            self.fail(_ABSOLUTE, f"{error} The grid tried is {source}.")

    def _resize(self, prefix: str, module: PositionEncoding) -> None:
        """Let an encoding bring its own entries to its own shapes."""
        for own in [name for name in self.state if name.startswith(prefix)]:
            if fault := value_fault(self.state[own]):  # before resizing spreads it
                self.fail(own, fault)
        if isinstance(module, RelativeBias) and self._stated_window() is None:
            table = self.state.get(prefix + _TABLE)
            doubt = "" if table is None else window_doubt(len(table), module.window_size)
            if doubt:
                self.fail(prefix + _TABLE, f"{doubt}; name the file's window (--window H W)")
                return
        try:
            facts = self._facts(prefix, module)
            records = module.transfer(self.state, prefix, mode=self.options.mode, source=facts)
        except ValueError as error:
            text = str(error)
            key = next((key for key in self.state if text.startswith(f"{key}: ")), None)
            if key is None:
                key = next(key for key in self.wanted if key.startswith(prefix))
            self.fail(key, text.removeprefix(f"{key}: "))
            return
        for record in records:
            shapes = f"{record.old_shape} -> {record.new_shape}"
            self.record(record.key, "resized", f"{shapes}, {record.how}")

    def _facts(self, prefix: str, module: PositionEncoding) -> dict[str, tuple[int, int]]:
        """What is known of the file's encoding beyond the shape of its tensors."""
        given = file_encodings(self.weights, self.stated).get(type(module).__name__, {})
        facts = {
            name: _pair(given[name])
            for name in ("clip", "pretrained_window_size")
            if given.get(name)
        }
        if prefix in self.weights.windows:
            facts["pretrained_window_size"] = self.weights.windows[prefix]
        window = self._stated_window() if isinstance(module, LogCoordBias) else None
        window = window or self.known_window(prefix + _TABLE)
        return facts if window is None else {"window_size": window} | facts

    def _stated_window(self) -> tuple[int, int] | None:
        stated = self.stated.get("window_size")
        return self.options.window or (None if stated is None else _pair(stated))

    def known_window(self, key: str) -> tuple[int, int] | None:
        """Window of one table, where more than its shape tells it."""
        window, table = self._stated_window(), self.state.get(key)
        if window is None or table is None:
            return None
        fits = table.shape[0] == (2 * window[0] - 1) * (2 * window[1] - 1)
        # stages of a classifier whose map is smaller than the window have smaller tables
        self._window_fits |= fits
        return window if fits else None

    def fail(self, key: str, reason: str) -> None:
        self.state.pop(key, None)
        self.record(key, "problem", reason)

    def _settle(self, key: str, shape: tuple[int, ...]) -> None:
        """Record what became of a model's tensor that nothing else has settled."""
        value = self.state.get(key)
        if value is None:
            name = encoding_of_key(key)
            if name in self._varied and self.options.allow_encoding_mismatch:
                self.record(key, "new", "the file's encoding has no such table")
                return
            siblings = name in self.file_encodings
            where = "other blocks of the file have it" if siblings else "see depths and qkv_bias"
            self.record(key, "problem", f"missing in the file ({where})")
        elif tuple(value.shape) != shape:
            shapes = f"{tuple(value.shape)} in the file, {shape} in the config"
            self.fail(key, f"{shapes}; set {_config_field(key, tuple(value.shape), shape)}")
        elif fault := value_fault(value):
            self.fail(key, fault)
        else:
            note = precision_note(value)
            self.record(key, "loaded", f"from the {self.weights.layout.name} file{note}")


def _config_field(key: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The backbone's config field that decides a shape."""
    role = (RELPOS.role_of(key) or ("", {}))[0]
    if encoding_of_key(key):
        return "the options of the encoding, embed_dims and num_heads to the file's"
    differ = [axis for axis, size in enumerate(found) if wanted[axis : axis + 1] != (size,)]
    if role == "patch" and 0 not in differ:
        return "in_channels" if differ == [1] else "patch_size"
    if (role, differ) in (("fc1", [0]), ("fc2", [1])):
        return "mlp_ratio"
    return "embed_dims"


def _token_grid(backbone: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens ``(H, W)`` of the pre-training picture of a backbone's config."""
    height, width = _pair(backbone.get("pretrain_img_size", 224))
    patch = backbone.get("patch_size", 4)
    return -(-height // patch), -(-width // patch)


def file_encodings(weights: Weights, stated: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Configs of a file's encodings by type: as stated, else as its tensors and buffers tell."""
    found = {str(cfg["type"]): dict(cfg) for cfg in stated.get("position", [])}
    for name, keys in encodings_of_keys(weights.backbone).items():
        found.setdefault(name, config_by_keys(name, keys))
    return weights.fixed | found


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    """A size as a pair; configs inside files have it as a list."""
    height, width = to_2tuple(size)
    return height, width
