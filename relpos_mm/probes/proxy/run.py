"""Train and judge the proxy tasks' networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator

from relpos_mm.analysis.catalogue import CATALOGUE, Position
from relpos_mm.encodings.resize import ResizeMode
from relpos_mm.engine.errors import UserError

from .model import ProxyModel, carried
from .tasks import LETTERS, SIDE, TASKS, Draw, relative_copy

# The rows of Table 4 under their own names, and one usual setting of everything else.
ENCODINGS: dict[str, Position] = {
    "noenc": (),
    "absonly": CATALOGUE["abs"],
    "absrel": (*CATALOGUE["abs"], *CATALOGUE["rel"]),
    "relonly": CATALOGUE["rel"],
    **{name: position for name, position in CATALOGUE.items() if name not in ("abs", "rel")},
    # 32 channels leave DPB's released width of C / 16 two units, whose norm makes them one sign.
    "dpb": ({"type": "DynamicBias", "hidden": "paper"},),
}
DEFAULT = (
    *("noenc", "absonly", "absrel", "relonly", "sin2d", "rope_axial", "rope_mixed", "irpe_k"),
    *("dpb", "logcpb", "alibi", "lookhere", "peg"),
)
SEEDS = (0, 1, 2)
STEPS, BATCH, LR = 300, 10, 5e-3
_TEST = 500  # pictures of the test
_TEST_SEED = 1_000_000  # added to the seed: no training draws from there

# The copy task on larger maps without retraining: side, how often a letter is repeated, and how
# tables are carried over.
SCALES: dict[str, tuple[int, int, ResizeMode]] = {
    "canvas, offsets kept": (12, 1, "extend"),
    "canvas, stretched": (12, 1, "scale"),
    "enlarged, offsets kept": (16, 2, "extend"),
    "enlarged, stretched": (16, 2, "scale"),
}


def known(names: Iterable[str], table: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """Return the names.

    Raises:
        UserError: One is not in the table.
    """
    names = tuple(names)
    for name in names:
        if name not in table:
            raise UserError(f"no {what} is called {name!r}; known: {', '.join(table)}")
    return names


def train(task: str, position: Sequence[Mapping[str, Any]], seed: int) -> ProxyModel:
    """Train one network; the same seed gives all encodings the same pictures and first values."""
    kind = TASKS[task]
    window = (kind.window, kind.window)
    generator = Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        model = ProxyModel(LETTERS, kind.classes, position, (SIDE, SIDE), window)
        optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=STEPS)
        for _ in range(STEPS):
            batch = kind.train(BATCH, generator)
            loss = F.cross_entropy(
                model(batch.letters).flatten(0, 2), batch.labels.flatten(), ignore_index=-1
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: ProxyModel, draw: Draw, seed: int, pictures: int = _TEST) -> float:
    """Share of right answers on fresh pictures."""
    generator = Generator().manual_seed(_TEST_SEED + seed)
    right = asked = 0
    for _ in range(0, pictures, 50):
        batch = draw(50, generator)
        answers = model(batch.letters).argmax(-1)
        right += int((answers == batch.labels).sum())
        asked += int((batch.labels >= 0).sum())
    return right / asked


def scale_scores(
    model: ProxyModel, position: Sequence[Mapping[str, Any]], seed: int
) -> dict[str, float]:
    """Accuracy of a network trained to copy, on larger maps, by the names of :data:`SCALES`."""
    scores = {}
    for name, (side, repeat, mode) in SCALES.items():
        larger = carried(model, position, (side, side), mode).eval()
        base = (side // repeat, side // repeat)

        def draw(batch: int, generator: Generator) -> Any:
            return relative_copy(batch, generator, base, repeat)  # noqa: B023  # used in this turn

        scores[name] = accuracy(larger, draw, seed, pictures=50)
    return scores
