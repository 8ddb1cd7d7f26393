"""Names of one network in the state dicts of six libraries: one table of key templates per layout.

The same table serves both directions. ``{i}`` is the stage, ``{j}`` the block, ``{p}`` is weight
or bias, ``{part}`` one third of a split qkv, ``{rest}`` anything; ``{2i+1}`` means that the number
in the key is twice the stage plus one. Sources: the public code of Swin Transformer
(classification, detection, segmentation), mmdetection, mmsegmentation, mmpretrain, torchvision
0.29, timm 1.0.31 and transformers 4 and 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

_PLACEHOLDER = re.compile(r"\{(\d*)([ij]|p|part|rest)(?:\+(\d+))?\}")
_VALUES = {"i": r"\d+", "j": r"\d+", "p": r"weight|bias", "part": r"\w+", "rest": r".+"}


@dataclass(frozen=True)
class Template:
    """A key with placeholders that can be matched against a key and filled again."""

    text: str

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        pattern, start = "", 0
        for hit in _PLACEHOLDER.finditer(self.text):
            pattern += re.escape(self.text[start : hit.start()])
            pattern += f"(?P<{hit[2]}>{_VALUES[hit[2]]})"
            start = hit.end()
        return re.compile(pattern + re.escape(self.text[start:]))

    def match_end(self, key: str) -> tuple[str, dict[str, str]] | None:
        """Like :meth:`match` behind any dotted prefix: (prefix, values), or None."""
        hit = self._end_regex.fullmatch(key)
        if hit is None:
            return None
        prefix = hit["_prefix"]
        fields = self.match(key[len(prefix) :])
        return None if fields is None else (prefix, fields)

    @cached_property
    def _end_regex(self) -> re.Pattern[str]:
        return re.compile(r"(?P<_prefix>(?:.*\.)?)" + self._regex.pattern)

    @cached_property
    def _numbers(self) -> dict[str, tuple[int, int]]:
        hits = _PLACEHOLDER.finditer(self.text)
        return {h[2]: (int(h[1] or 1), int(h[3] or 0)) for h in hits if h[2] in "ij"}

    def match(self, key: str) -> dict[str, str] | None:
        """The placeholder values of ``key`` (stage and block counted from zero), or None."""
        hit = self._regex.fullmatch(key)
        if hit is None:
            return None
        fields = hit.groupdict()
        for name, (factor, shift) in self._numbers.items():
            number, rest = divmod(int(fields[name]) - shift, factor)
            if rest or number < 0:
                return None
            fields[name] = str(number)
        return fields

    def fill(self, fields: dict[str, str]) -> str:
        """The key with these placeholder values."""

        def put(hit: re.Match[str]) -> str:
            if hit[2] not in self._numbers:
                return fields[hit[2]]
            factor, shift = self._numbers[hit[2]]
            return str(int(fields[hit[2]]) * factor + shift)

        return _PLACEHOLDER.sub(put, self.text)


@dataclass(frozen=True)
class Layout:
    """One library's names: role -> key template, and the few conventions that are not names."""

    name: str
    names: dict[str, str]
    head: str
    # how the absolute embedding is stored: "map" (1, C, H, W), "tokens" (1, L, C), or both
    # (official code: tokens in its classifier, map in its dense backbones)
    absolute: str = "tokens"
    unfold: bool = False  # patch merging in unfold order
    norm_apart: bool = (
        True  # a classifier's final norm is not named like the norm of a stage output
    )
    qkv_parts: tuple[str, ...] = ()  # names of the thirds where query, key and value are apart
    index: str = ""  # template of a saved index buffer
    flat_index: bool = False
    templates: dict[str, Template] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "templates", {k: Template(v) for k, v in self.names.items()})

    @cached_property
    def roots(self) -> frozenset[str]:
        """First words of the keys that belong to the backbone's body (norms and heads left out)."""
        body = (v for k, v in self.names.items() if k not in ("final_norm", "stage_norm"))
        return frozenset(text.split(".")[0] for text in body)

    def role_of(self, key: str) -> tuple[str, dict[str, str]] | None:
        """The role of a key (without prefix) and its placeholder values, or None."""
        for role, template in self.templates.items():
            fields = template.match(key)
            if fields is not None and fields.get("part", "") in ("", *self.qkv_parts):
                return role, fields
        return None


def _swin_names(block: str, merge: str, **names: str) -> dict[str, str]:
    """Names shared by all layouts; a leading dot means below the block."""
    table = {
        "patch": "patch_embed.proj.{p}",
        "patch_norm": "patch_embed.norm.{p}",
        "norm1": ".norm1.{p}",
        "qkv": ".attn.qkv.{p}",
        "proj": ".attn.proj.{p}",
        "table": ".attn.relative_position_bias_table",
        "norm2": ".norm2.{p}",
        "fc1": ".mlp.fc1.{p}",
        "fc2": ".mlp.fc2.{p}",
        "merge_norm": merge + ".norm.{p}",
        "merge_reduction": merge + ".reduction.weight",
        "final_norm": "norm.{p}",
    }
    table.update(names)
    return {role: block + text if text.startswith(".") else text for role, text in table.items()}


RELPOS = Layout(
    "relpos",
    _swin_names(
        "stages.{i}.blocks.{j}",
        "stages.{i}.downsample",
        patch="patch_embed.projection.{p}",
        absolute="position.absolute_table.absolute_pos_embed",
        table=".attn.position.relative_bias.relative_position_bias_table",
        rope=".attn.position.mixed_rope.rope_freqs",
        fc1=".ffn.layers.0.0.{p}",
        fc2=".ffn.layers.1.{p}",
        stage_norm="norm{i}.{p}",
        position="position.{rest}",
        stage_position="stages.{i}.position.{rest}",
        block_position=".attn.position.{rest}",
    ),
    head="head.fc.{p}",
    absolute="map",
    norm_apart=False,
)
OFFICIAL = Layout(
    "official",
    _swin_names(
        "layers.{i}.blocks.{j}",
        "layers.{i}.downsample",
        absolute="absolute_pos_embed",
        rope=".attn.rope_freqs",  # rope-vit's Swin
        stage_norm="norm{i}.{p}",
    ),
    head="head.{p}",
    absolute="both",
    index="layers.{i}.blocks.{j}.attn.relative_position_index",
)
MM = Layout(
    "mm",
    _swin_names(
        "stages.{i}.blocks.{j}",
        "stages.{i}.downsample",
        patch="patch_embed.projection.{p}",
        absolute="absolute_pos_embed",
        qkv=".attn.w_msa.qkv.{p}",
        proj=".attn.w_msa.proj.{p}",
        table=".attn.w_msa.relative_position_bias_table",
        fc1=".ffn.layers.0.0.{p}",
        fc2=".ffn.layers.1.{p}",
        stage_norm="norm{i}.{p}",
    ),
    head="head.fc.{p}",
    unfold=True,
    norm_apart=False,
    index="stages.{i}.blocks.{j}.attn.w_msa.relative_position_index",
)
TIMM = Layout(
    "timm", _swin_names("layers.{i}.blocks.{j}", "layers.{i+1}.downsample"), head="head.fc.{p}"
)
TORCHVISION = Layout(
    "torchvision",
    _swin_names(
        "features.{2i+1}.{j}",
        "features.{2i+2}",
        patch="features.0.0.{p}",
        patch_norm="features.0.2.{p}",
        fc1=".mlp.0.{p}",
        fc2=".mlp.3.{p}",
    ),
    head="head.{p}",
    index="features.{2i+1}.{j}.attn.relative_position_index",
    flat_index=True,
)


def _hf(qkv: str, proj: str, table: str, fc1: str, fc2: str, parts: tuple[str, ...]) -> Layout:
    return Layout(
        "hf",
        _swin_names(
            "encoder.layers.{i}.blocks.{j}",
            "encoder.layers.{i}.downsample",
            patch="embeddings.patch_embeddings.projection.{p}",
            patch_norm="embeddings.norm.{p}",
            absolute="embeddings.position_embeddings",
            norm1=".layernorm_before.{p}",
            qkv=f".attention.{qkv}.{{p}}",
            proj=f".attention.{proj}.{{p}}",
            table=f".attention.{table}.relative_position_bias_table",
            norm2=".layernorm_after.{p}",
            fc1=f".{fc1}.{{p}}",
            fc2=f".{fc2}.{{p}}",
            stage_norm="hidden_states_norms.stage{i+1}.{p}",
            final_norm="layernorm.{p}",
        ),
        head="classifier.{p}",
        qkv_parts=parts,
    )


HF = _hf(
    "self.{part}",
    "output.dense",
    "self",
    "intermediate.dense",
    "output.dense",
    ("query", "key", "value"),
)
# transformers 5 renames the modules in memory; files on disk keep the older names
HF_IN_MEMORY = _hf(
    "{part}",
    "o_proj",
    "relative_position_bias",
    "mlp.fc1",
    "mlp.fc2",
    ("q_proj", "k_proj", "v_proj"),
)

READABLE = (RELPOS, OFFICIAL, MM, TIMM, TORCHVISION, HF, HF_IN_MEMORY)
LAYOUTS = {layout.name: layout for layout in (RELPOS, OFFICIAL, MM, TIMM, TORCHVISION, HF)}
