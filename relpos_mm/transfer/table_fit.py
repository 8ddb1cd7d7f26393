"""Continuous position biases fitted to a learned table by least squares."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from relpos_mm.encodings.dynamic_bias import DynamicBias
from relpos_mm.encodings.grid import Size
from relpos_mm.encodings.log_coord_bias import LogCoordBias, log_coords
from relpos_mm.encodings.offsets import offset_set

_STEPS = 200  # of L-BFGS
_RANGE = (1e-3, 1 - 1e-3)  # of a sigmoid that least squares may ask for


@dataclass(frozen=True)
class TableFit:
    """A fitted encoding.

    Attributes:
        state: Its parameters, of the table's dtype.
        rms: Root mean square difference to the table over all offsets and heads, without each
            head's mean, which softmax ignores.
        spread: The same of the table itself: what fitting nothing would leave.
    """

    state: dict[str, Tensor]
    rms: float
    spread: float

    def __str__(self) -> str:
        share = self.rms / self.spread if self.spread else 0.0
        return f"rms error {self.rms:.3g}, {share:.2%} of the table's spread {self.spread:.3g}"


def fit_table(encoding: DynamicBias | LogCoordBias, table: Tensor, window: Size) -> TableFit:
    """Fit a copy of ``encoding`` to a bias table on the offsets of one window.

    Args:
        encoding: Gives the form; its values are not used, the result is always the same.
        table: ``((2 Wh - 1)(2 Ww - 1), h)``, rows by rising offset.
        window: ``(Wh, Ww)``; becomes the reference window of a ``LogCoordBias``.

    Raises:
        ValueError: The table has another number of heads or rows.
    """
    last = encoding.cpb_mlp[2] if isinstance(encoding, LogCoordBias) else encoding.pos3[2]
    size = ((2 * window[0] - 1) * (2 * window[1] - 1), len(last.weight))  # type: ignore[arg-type]
    if tuple(table.shape) != size:
        raise ValueError(
            f"{tuple(table.shape)} in the file, {size} for a window of {window[0]}x{window[1]} in "
            "the config; set num_heads to the file's, or name the file's window (--window H W)"
        )
    model, wanted = deepcopy(encoding).double(), table.double()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        if isinstance(model, LogCoordBias):
            found = _fit_log_coords(model, wanted, window)
        else:
            found = _fit_network(model, wanted, window)
    state = {key: value.detach().to(table.dtype) for key, value in model.named_parameters()}
    return TableFit(state, _rms(found - wanted), _rms(wanted))


def _fit_network(model: DynamicBias, wanted: Tensor, window: Size) -> Tensor:
    """Minimise the squared error over all parameters."""
    offsets = offset_set(window, window)[0].double()
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]  # wider than the starting values of a training
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=_STEPS, history_size=30, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(offsets) - wanted).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model(offsets).detach()


def _fit_log_coords(model: LogCoordBias, wanted: Tensor, window: Size) -> Tensor:
    """Spread the hidden units over the offsets, then solve for the last layer.

    The bias lies between 0 and 16, so each head's table is moved into the middle.
    """
    coords = log_coords(window, window, window)[0].double()
    hidden = len(model.cpb_mlp[0].weight)  # type: ignore[arg-type]
    direction = torch.randn(hidden, 2, dtype=torch.float64)
    # Each unit bends at a point between two of the offsets.
    ends = coords[torch.randint(len(coords), (2, hidden))]
    bend = torch.lerp(ends[0], ends[1], torch.rand(hidden, 1, dtype=torch.float64))
    units = torch.relu(coords @ direction.t() - (direction * bend).sum(1))
    middle = (wanted.amin(0) + wanted.amax(0)) / 2
    logits = ((wanted - middle) / 16 + 0.5).clamp(*_RANGE).logit()
    last = torch.linalg.lstsq(units, logits, driver="gelsd").solution  # of least norm
    with torch.no_grad():
        state = model.cpb_mlp.state_dict()
        state["0.weight"].copy_(direction)
        state["0.bias"].copy_(-(direction * bend).sum(1))
        state["2.weight"].copy_(last.t())
    return 16 * torch.sigmoid(units @ last)


def _rms(values: Tensor) -> float:
    return (values - values.mean(0)).square().mean().sqrt().item()
