"""A table that a form made is fitted by this form, and by the others as far as they contain it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import (
    Alibi2d,
    DynamicBias,
    LogCoordBias,
    RelativeBias,
    position_modules,
)
from relpos_mm.encodings.offsets import offset_set
from relpos_mm.engine.errors import UserError
from relpos_mm.probes.expressivity import Expressivity
from relpos_mm.probes.table_forms import FORMS, fit_r2, offset_table

from ..models.tiny import loud, tiny

WINDOW = (4, 5)
ROWS, COLUMNS = 7, 9


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def r2(form: str, table: Tensor) -> Tensor:
    return fit_r2(table, FORMS[form](table, WINDOW))


def rank(number: int) -> Tensor:
    """A table of products of rows and columns, for three heads."""
    factors = torch.randn(3, ROWS, number), torch.randn(3, number, COLUMNS)
    return (factors[0] @ factors[1]).flatten(1).t()


MADE = {
    "rows + columns": lambda: (torch.randn(ROWS, 1, 3) + torch.randn(1, COLUMNS, 3)).flatten(0, 1),
    "rank 2": lambda: rank(1) + 3,
    "distance": lambda: offset_set(WINDOW, WINDOW)[0].norm(dim=1, keepdim=True) ** torch.rand(3),
    "slope": lambda: offset_table(Alibi2d(num_heads=3), WINDOW, 3),
    "iRPE buckets": lambda: FORMS["iRPE buckets"](torch.randn(ROWS * COLUMNS, 3), WINDOW),
    "CPB": lambda: offset_table(loud(LogCoordBias(num_heads=3, window_size=WINDOW)), WINDOW, 3),
    "DPB, C/4": lambda: offset_table(loud(DynamicBias(embed_dims=96, num_heads=3)), WINDOW, 3),
}


@pytest.mark.parametrize("form", MADE)
def test_a_form_fits_what_it_made(form: str) -> None:
    table = MADE[form]()
    assert table.shape == (ROWS * COLUMNS, 3)
    # The networks of DPB are fitted by a search, which need not end at the best one.
    assert r2(form, table).min() > (0.99 if form == "DPB, C/4" else 0.999)


def test_a_form_does_not_fit_what_it_cannot_say() -> None:
    table = rank(4)
    assert r2("rank 2", table).max() < 0.99
    assert (r2("rank 1", table) < r2("rank 2", table)).all()
    signs = offset_set(WINDOW, WINDOW)[0][:, 1:].sign()
    assert r2("distance", signs).max() < 1e-6, "left and right are as far away"
    assert r2("rows + columns", signs).min() > 0.999


def test_a_constant_is_ignored_as_softmax_does() -> None:
    table = rank(1)
    assert torch.allclose(fit_r2(table, table + 5), torch.ones(3))
    assert fit_r2(torch.ones(4, 2), torch.ones(4, 2)).tolist() == [1.0, 1.0]


def test_offsets_come_back_in_the_order_of_the_table() -> None:
    encoding = loud(RelativeBias(num_heads=2, window_size=WINDOW))
    found = offset_table(encoding, WINDOW, 2)
    assert torch.equal(found, encoding.relative_position_bias_table)


def test_every_block_and_head_of_a_model_is_fitted() -> None:
    model = tiny(position=[{"type": "RelativeBias"}])
    for module in position_modules(model).values():
        heads = module.relative_position_bias_table.shape[1]
        penalty = offset_table(Alibi2d(num_heads=heads), module.window_size, heads)
        module.relative_position_bias_table.data.copy_(penalty)
    subject = SimpleNamespace(model=model, checkpoint="some.pth")
    found = Expressivity().measure(subject, {"forms": ["rows + columns", "distance"]})
    blocks = [len(stage.blocks) for stage in model.stages]
    names = [f"{i + 1}.{j + 1}" for i, n in enumerate(blocks) for j in range(n)]
    assert list(found.details["distance"]) == names
    assert found.numbers["distance, lowest R2"] > 0.9999
    assert found.numbers["rows + columns, median R2"] < 0.98
    assert found.details["distance"]["4.2"]["relative error"][0] < 0.01


def test_a_model_without_a_table_is_refused() -> None:
    subject = SimpleNamespace(model=tiny(position=[]), checkpoint="some.pth")
    with pytest.raises(UserError, match=r"some\.pth: no RelativeBias"):
        Expressivity().measure(subject, {"forms": list(FORMS)})
