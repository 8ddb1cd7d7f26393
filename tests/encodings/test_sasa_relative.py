"""Row and column vectors of stand-alone self-attention."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid, SasaRelative

from .layers import heads_of
from .reference import FILES, error, read


@pytest.mark.parametrize("factored", [True, False])
def test_neighbourhood_logits_equal_the_public_ones(factored: bool) -> None:
    """Every pair inside a 3 x 3 neighbourhood; the port's tables rise with key minus query."""
    data = read(FILES / "encodings" / "sasa_k3.npz")
    side, groups = data["meta_kernel_groups"].tolist()
    height, width = data["x"].shape[2:]
    x = data["x"].double().flatten(2).transpose(1, 2)
    q, k = (heads_of(x @ data[f"{n}_w"].double().t(), groups) for n in ("query", "key"))
    encoding = SasaRelative(
        embed_dims=x.shape[2],
        num_heads=groups,
        window_size=(side // 2 + 1,) * 2,
        split="channels",
        factored=factored,
    ).double()
    state = {name: data[name].t().flip(0) for name in ("rel_h", "rel_w")}
    encoding.load_state_dict(state)
    term = encoding.bias(q, k, Grid((height, width)), 1.0)
    term = term[0] @ term[1].transpose(-2, -1) if factored else term
    logits = (q @ k.transpose(-2, -1) + term)[0].view(groups, height, width, height, width)
    reach = side // 2
    ours, expected = [], []
    for y in range(height):
        for x_ in range(width):
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    if 0 <= y + dy < height and 0 <= x_ + dx < width:
                        ours.append(logits[:, y, x_, y + dy, x_ + dx])
                        place = (dy + reach) * side + dx + reach
                        expected.append(data["logits_summed"][:, y, x_, place])
    assert error(torch.stack(ours), torch.stack(expected)) < 1e-9


def test_parameters_of_swin_t() -> None:
    blocks = [(96 * 2**i, 3 * 2**i) for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    built = [SasaRelative(embed_dims=c, num_heads=h, window_size=(7, 7)) for c, h in blocks]
    assert sum(p.numel() for encoding in built for p in encoding.parameters()) == 4_992


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "batch"}, "split must be"),
        ({"split": "channels", "shared_heads": True}, "own vectors"),
        ({"num_heads": 4}, "no halves"),
        ({"num_heads": 5}, "does not divide"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str) -> None:
    arguments = {"embed_dims": 12, "num_heads": 2, "window_size": (3, 3), **options}
    with pytest.raises(ValueError, match=message):
        SasaRelative(**arguments)
