"""Synthetic tasks on small maps of letters that isolate one property of position each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from relpos_mm.encodings.grid import Size

LETTERS = 16
SIDE = 8  # of the map in tokens
OFFSET = (-1, 2)  # of the copied letter, rows and columns; outside a 3 x 3 neighbourhood
RADIUS = 3.5  # tokens; about half of all pairs on the map are nearer
WINDOW = 4  # of the window-phase trap
CUE = 0.8  # how often its letter tells the truth

BLANK, MARKER = 0, 1


@dataclass(frozen=True)
class Batch:
    """Pictures and what every token should say.

    Attributes:
        letters: ``(B, H, W)`` int64.
        labels: ``(B, H, W)`` int64, -1 where nothing is asked.
    """

    letters: Tensor
    labels: Tensor


Draw = Callable[[int, Generator], Batch]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        question: What each token has to answer.
        property: What has to be represented for it.
        classes: Number of answers.
        train: Draws pictures to learn from.
        test: Draws pictures to be judged by; the trap's are unlike those of training.
        window: Attention window, the whole map unless the task is about windows.
    """

    question: str
    property: str
    classes: int
    train: Draw
    test: Draw
    window: int = SIDE


def relative_copy(
    batch: int, generator: Generator, size: Size = (SIDE, SIDE), enlarge: int = 1
) -> Batch:
    """Random letters; the answer is the letter at a fixed offset.

    With ``enlarge`` every letter covers ``enlarge x enlarge`` tokens and the offset grows along.
    """
    letters = torch.randint(LETTERS, (batch, *size), generator=generator)
    labels = torch.full_like(letters, -1)
    dy, dx = OFFSET
    labels[:, -dy:, :-dx] = letters[:, :dy, dx:]
    for axis in (1, 2):
        letters = letters.repeat_interleave(enlarge, axis)
        labels = labels.repeat_interleave(enlarge, axis)
    return Batch(letters, labels)


def quadrant(batch: int, generator: Generator) -> Batch:
    """One letter all over the picture; the answer is the quadrant of the map."""
    half = torch.arange(SIDE) >= SIDE // 2
    labels = 2 * half.long()[:, None] + half.long()[None, :]
    return Batch(_constant(batch, LETTERS, generator), labels.expand(batch, -1, -1))


def distance_threshold(batch: int, generator: Generator) -> Batch:
    """One marker on a blank map; the answer is whether it is within ``RADIUS``."""
    place = torch.randint(SIDE * SIDE, (batch, 1), generator=generator)
    letters = _marked(place)
    labels = (_distance(place) <= RADIUS).long()
    return Batch(letters, labels.masked_fill(letters == MARKER, -1))


def left_right_order(batch: int, generator: Generator) -> Batch:
    """One marker on a blank map; the answer is whether it is to the right, outside its column."""
    place = torch.randint(SIDE * SIDE, (batch, 1), generator=generator)
    ahead = (place % SIDE)[:, :, None] - torch.arange(SIDE)[None, None, :]
    labels = torch.where(ahead == 0, -1, (ahead > 0).long())
    return Batch(_marked(place), labels.expand(-1, SIDE, -1))


def window_phase(batch: int, generator: Generator, trap: bool) -> Batch:
    """One letter all over the picture tells the answer, in ``CUE`` of the pictures truly.

    With ``trap`` only those tokens are asked that stand in the half of their window that tells the
    answer too; without, all are.
    """
    answer = torch.randint(2, (batch,), generator=generator)
    honest = torch.randperm(batch, generator=generator) < round(CUE * batch)
    letters = torch.where(honest, answer, 1 - answer)[:, None, None].expand(batch, SIDE, SIDE)
    labels = answer[:, None, None].expand(batch, SIDE, SIDE)
    if trap:
        half = (torch.arange(SIDE) % WINDOW >= WINDOW // 2).long()
        labels = torch.where(labels == half, labels, -1)
    return Batch(letters, labels)


def _constant(batch: int, letters: int, generator: Generator) -> Tensor:
    chosen = torch.randint(letters, (batch, 1, 1), generator=generator)
    return chosen.expand(batch, SIDE, SIDE)


def _marked(place: Tensor) -> Tensor:
    """Blank maps with a marker at ``place (B, 1)``."""
    letters = torch.full((len(place), SIDE * SIDE), BLANK)
    return letters.scatter(1, place, MARKER).view(-1, SIDE, SIDE)


def _distance(place: Tensor) -> Tensor:
    """Distance of every token to ``place (B, 1)``: ``(B, H, W)``."""
    rows, columns = place[:, :, None] // SIDE, place[:, :, None] % SIDE
    line = torch.arange(SIDE)
    down, right = line[None, :, None] - rows, line[None, None, :] - columns
    return torch.hypot(down.float(), right.float())


TASKS: dict[str, Task] = {
    "relative_copy": Task(
        f"Which letter stands {-OFFSET[0]} row up and {OFFSET[1]} columns to the right?",
        "one offset, told from all others",
        LETTERS,
        relative_copy,
        relative_copy,
    ),
    "quadrant": Task(
        "In which quarter of the map is this token? All tokens look the same.",
        "absolute position",
        4,
        quadrant,
        quadrant,
    ),
    "distance_threshold": Task(
        f"Is the marker within {RADIUS} tokens?",
        "the length of an offset",
        2,
        distance_threshold,
        distance_threshold,
    ),
    "left_right_order": Task(
        "Is the marker to the right?",
        "the sign of an offset",
        2,
        left_right_order,
        left_right_order,
    ),
    "window_phase_trap": Task(
        f"What does the letter say? (It is right in {CUE:.0%} of all pictures.) In training the "
        f"half of the {WINDOW} x {WINDOW} window tells the answer too, always; in the test it does "
        "not.",
        "blindness to the place in the window",
        2,
        lambda batch, generator: window_phase(batch, generator, trap=True),
        lambda batch, generator: window_phase(batch, generator, trap=False),
        WINDOW,
    ),
}
