"""``torch.compile`` of the backbone: the same numbers, and few graphs for many sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.models import RelPosSwin

from .tiny import loud, picture, tiny

# One window, several, a row and a column of them; whole and broken patches and windows.
SIZES = ((28, 28), (64, 56), (61, 90), (9, 120), (120, 15))
BATCH = 2
ONE_STAGE = {"depths": (2,), "num_heads": (2,), "out_indices": (0,)}


class Counted:
    """A backend that compiles nothing and counts the graphs of every stage, by its channels."""

    def __init__(self) -> None:
        self.graphs: Counter[int] = Counter()

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        tensors = [x for x in inputs if isinstance(x, Tensor) and x.is_floating_point()]
        maps = [x for x in tensors if x.ndim == 4 and len(x) == BATCH]
        self.graphs[maps[0].shape[-1] if maps else 0] += 1
        return graph.forward


@pytest.fixture(autouse=True)
def no_graphs_of_other_tests() -> None:
    torch.compiler.reset()


def check_sizes(model: RelPosSwin, sizes: Iterable[tuple[int, int]], most: int = 3) -> None:
    """Compare outputs at all sizes; no stage may take more than ``most`` graphs."""
    counted, compiled = Counted(), deepcopy(model)
    compiled.compile(backend=counted, fullgraph=True)
    for size in sizes:
        x = picture(*size, batch=BATCH)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)
    assert set(counted.graphs) == set(model.num_features)
    assert max(counted.graphs.values()) <= most, "too many recompilations"


def test_few_graphs_serve_all_sizes() -> None:
    check_sizes(loud(tiny(position=CATALOGUE["rel"], **ONE_STAGE)).eval(), SIZES)


def test_hidden_padding_is_hidden_in_a_graph_too() -> None:
    model = tiny(position=CATALOGUE["irpe_k"], mask_padding=True, **ONE_STAGE)
    check_sizes(loud(model).eval(), SIZES[1:3])


@pytest.mark.nightly
@pytest.mark.parametrize("name", CATALOGUE)
def test_few_graphs_serve_all_sizes_with_every_encoding(name: str) -> None:
    """All stages: 8 times as large, the maps of the last stage are those above."""
    model = tiny(position=CATALOGUE[name], pretrain_img_size=128)
    check_sizes(loud(model).eval(), [(8 * height, 8 * width) for height, width in SIZES])


def test_graphs_know_the_content_of_padded_pictures() -> None:
    model = loud(tiny(position=CATALOGUE["peg"], mask_padding=True, **ONE_STAGE)).eval()
    compiled = deepcopy(model)
    compiled.compile(backend=Counted())
    x, pictures = picture(100, 131, batch=BATCH), [(100, 90), (61, 131)]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, pictures), model(x, pictures), atol=1e-4, rtol=1e-4)


@pytest.mark.train
def test_inductor_computes_the_same_gradients() -> None:
    """In training, with the real compiler, at two sizes."""
    model = loud(tiny(**ONE_STAGE))
    compiled = deepcopy(model)
    compiled.compile()
    for size in ((61, 90), (72, 64)):
        found, expected = (gradients(one, picture(*size, batch=BATCH)) for one in (compiled, model))
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    sum(out.square().mean() for out in model(x)).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}
