"""Published networks that are no Swin of this project but whose position parameters fit one.

Only names are known here. Their blocks compute something else (Swin V2 normalises behind the
branch, Hiera pools its queries), so nothing but the position parameters means the same here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

_BLOCK = r"layers\.(?P<i>\d+)\.blocks\.(?P<j>\d+)"
_V2_MLP = "cpb_mlp|continuous_position_bias_mlp"
# official and timm; transformers, on disk and in memory
_V2 = re.compile(
    rf"(?:.*\.)?{_BLOCK}\.(?:attn|attention(?:\.self)?)\."
    rf"(?:(?:{_V2_MLP})\.(?P<mlp>[02]\.(?:weight|bias))|(?P<rest>logit_scale|relative_coords_table))"
)
# timm; SAM 2 and what was trained from it
_HIERA_WINDOW = re.compile(r"(?P<prefix>(?:.*\.)?)(?<!absolute_win\.)pos_embed_win(?:dow)?")


@dataclass(frozen=True)
class Published:
    """Position parameters of a published network.

    Attributes:
        network: Its name.
        encoding: Type of the encoding that they belong to.
        why: Why nothing else of the file can be used.
        entries: Canonical key -> tensor.
        origin: Canonical key -> key in the file.
        left: Every other key of the file.
    """

    network: str
    encoding: str
    why: str
    entries: dict[str, Tensor]
    origin: dict[str, str]
    left: list[str]

    @property
    def refusal(self) -> str:
        """What the file is, what could be carried, and how."""
        return (
            f"these are {self.network} weights ({self.why}), another network than the Swin of this "
            f"project. {len(self.entries)} position tensors are recognised and can start a "
            f"config's {self.encoding} (--position-only); the other {len(self.left)} tensors "
            "cannot be carried. For a whole network take a Swin V1 file"
        )


def find_published(state: Mapping[str, Tensor]) -> Published | None:
    """Recognise Swin V2 and Hiera by the names of their position parameters."""
    v2 = {key: hit for key in state if (hit := _V2.fullmatch(key))}
    if any(hit["mlp"] for hit in v2.values()):
        names = {key: _v2_name(hit) for key, hit in v2.items()}
        why = "continuous position bias, post-norm blocks"
        return _published("Swin V2", "LogCoordBias", why, names, state)
    for key in state:
        hit = _HIERA_WINDOW.fullmatch(key)
        whole = f"{hit['prefix']}pos_embed" if hit else ""
        if whole in state:
            ours = "position.absolute_win."
            names = {key: f"{ours}pos_embed_window", whole: f"{ours}pos_embed"}
            why = "absolute-win embedding, pooled attention"
            return _published("Hiera", "AbsoluteWin", why, names, state)
    return None


def _v2_name(hit: re.Match[str]) -> str:
    rest = f"cpb_mlp.{hit['mlp']}" if hit["mlp"] else hit["rest"]
    return f"stages.{hit['i']}.blocks.{hit['j']}.attn.position.log_coord_bias.{rest}"


def _published(
    network: str, encoding: str, why: str, names: dict[str, str], state: Mapping[str, Tensor]
) -> Published:
    return Published(
        network=network,
        encoding=encoding,
        why=why,
        entries={ours: state[key] for key, ours in names.items()},
        origin={ours: key for key, ours in names.items()},
        left=[key for key in state if key not in names],
    )
