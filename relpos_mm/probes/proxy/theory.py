"""What each encoding can represent in one block, told by thought and counted out.

Two facts decide everything. A token tells another one by its letter and by the *class* of the
offset between them: all that the encoding says of it. Of its own *place* a token knows what the
encoding gives away: nothing, the border it touches, or all. Whatever is alike in both cannot be
told apart, so the best guess among what is alike bounds the score of every training.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, Literal

import torch

from relpos_mm.encodings.irpe_buckets import BucketRule
from relpos_mm.registry import encoding_class

from .tasks import CUE, LETTERS, OFFSET, RADIUS, SIDE, WINDOW

Pair = tuple[int, int]
Kind = Literal["bound", "reachable"]
_TOKENS: list[Pair] = list(product(range(SIDE), range(SIDE)))
_SAMPLES = 2000  # of random letters, for the best guess among some of them


@dataclass(frozen=True)
class Family:
    """Encodings that know the same.

    Attributes:
        why: What they know, for readers.
        offset: Class of an offset, key minus query.
        place: What a token knows of its own place, on a map with letters.
        blank: The same where all tokens look alike.
        fits: Whether parameters exist that make use of all of it; otherwise it is only a bound.
    """

    why: str
    offset: Callable[[Pair], Hashable]
    place: Callable[[Pair], Hashable]
    blank: Callable[[Pair], Hashable]
    fits: bool = False


@dataclass(frozen=True)
class Prediction:
    """What the score should be.

    Attributes:
        score: Share of right answers.
        kind: ``bound`` when no training can do better (in the trap: every training does as well),
            ``reachable`` when besides some parameters do so and whether a training finds them is
            open.
    """

    score: float
    kind: Kind


def _nothing(_: Pair) -> Hashable:
    return 0


def _all(pair: Pair) -> Hashable:
    return pair


def _border(place: Pair) -> Hashable:
    return tuple((x == 0, x == SIDE - 1) for x in place)


def _near(offset: Pair) -> Hashable:
    return offset if max(map(abs, offset)) <= 1 else "far"


def _mirrored(place: Pair) -> Hashable:
    return tuple(sorted(min(x, SIDE - 1 - x) for x in place))


def _length(offset: Pair) -> Hashable:
    return offset[0] ** 2 + offset[1] ** 2


def _sides(offset: Pair) -> Hashable:
    return _length(offset), *((x <= 0, x >= 0) for x in offset)


FAMILIES: dict[str, Family] = {
    "none": Family("tells no token from another but itself", _nothing, _nothing, _nothing, True),
    "border": Family("sees its 3 x 3 neighbours and the border", _near, _border, _border),
    "distance": Family("tells offsets by their length", _length, _mirrored, _nothing),
    "sides": Family(
        "tells offsets by their length, left from right and up from down", _sides, _all, _nothing
    ),
    "offset": Family("tells all offsets apart", _all, _all, _nothing, True),
    "place": Family("tells all places apart", _all, _all, _all, True),
}
_OF_TYPE = {
    "AbsoluteTable": "place",
    "AbsoluteWin": "place",
    "Sinusoid2d": "place",
    "RelativeBias": "offset",
    "DynamicBias": "offset",
    "LogCoordBias": "offset",
    "AxialRope": "offset",
    "MixedRope": "offset",
    "DirectedDistance": "sides",
    "Alibi2d": "distance",
    "ConvPosition": "border",
    "LocalEnhanced": "border",
}


def family_of(position: Sequence[Mapping[str, Any]]) -> Family | None:
    """Return what a list of encodings knows; None when nobody has worked it out.

    A list with an absolute encoding knows the place whatever else it has.
    """
    names = [_OF_TYPE.get(encoding_class(cfg).__name__) for cfg in position]
    if "place" in names:
        return FAMILIES["place"]
    if not position:
        return FAMILIES["none"]
    if len(position) > 1:
        return None
    return FAMILIES[names[0]] if names[0] else _buckets(position[0])


def _buckets(cfg: Mapping[str, Any]) -> Family | None:
    """IRPE's product buckets on queries and keys; on values they reach the place through counts."""
    usual = encoding_class(cfg).__name__ == "ContextualRpe" and not set(cfg) - {"type", "rpe_on"}
    if not usual or "v" in cfg.get("rpe_on", "k"):
        return None
    rule = BucketRule("product", 1.9)

    def bucket(offset: Pair) -> Hashable:
        # Offsets of queries minus keys; on q and k together the mirrored pair adds nothing.
        return tuple(rule.axis_index(-torch.tensor(offset, dtype=torch.float32)).tolist())

    return Family("tells offsets by their bucket", cache(bucket), _all, _nothing)


def predict(task: str, position: Sequence[Mapping[str, Any]]) -> Prediction | None:
    """Return what theory says of a task and a list of encodings; None when it says nothing."""
    family = family_of(position)
    if family is None:
        return None
    score = _SCORES[task](family)
    if task == "window_phase_trap":
        # Who knows nothing of its place is safe; who does may or may not learn to rely on it.
        return Prediction(score, "bound" if family.blank is _nothing else "reachable")
    return Prediction(score, "reachable" if family.fits else "bound")


def without_position(task: str) -> float:
    """Score of the best guess that knows no position, the floor of the task."""
    return _SCORES[task](FAMILIES["none"])


def _best_guess(cases: Iterable[tuple[Hashable, int]]) -> float:
    """Share of right answers when cases ``(view, answer)`` of one view all get the same one."""
    views: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for view, answer in cases:
        views[view][answer] += 1
    return sum(max(c.values()) for c in views.values()) / sum(c.total() for c in views.values())


def _copy(family: Family) -> float:
    wanted, found = family.offset(OFFSET), []
    for place in _TOKENS:
        if all(0 <= x + o < SIDE for x, o in zip(place, OFFSET, strict=True)):
            alike = sum(
                family.offset(offset) == wanted
                for offset in (_minus(other, place) for other in _TOKENS if other != place)
            )
            found.append(_best_of(alike))
    return sum(found) / len(found)


@cache
def _best_of(count: int) -> float:
    """Chance that one of ``count`` random letters is the most frequent of them."""
    if count == 1:
        return 1.0
    generator = torch.Generator().manual_seed(count)
    drawn = torch.randint(LETTERS, (_SAMPLES, count), generator=generator)
    frequent = torch.nn.functional.one_hot(drawn, LETTERS).sum(1).amax(1)
    return frequent.double().mean().item() / count


def _quadrant(family: Family) -> float:
    half = SIDE // 2
    return _best_guess((family.blank(p), 2 * (p[0] >= half) + (p[1] >= half)) for p in _TOKENS)


def _distance(family: Family) -> float:
    return _best_guess(
        ((family.place(p), family.offset(o)), int(o[0] ** 2 + o[1] ** 2 <= RADIUS**2))
        for p, o in _pairs()
    )


def _order(family: Family) -> float:
    return _best_guess(
        ((family.place(p), family.offset(o)), int(o[1] > 0)) for p, o in _pairs() if o[1]
    )


def _trap(family: Family) -> float:
    """Score in the test of who answers by the place wherever that was sure in training."""
    halves = defaultdict(set)
    for p in _TOKENS:
        halves[family.blank(p)].add(p[1] % WINDOW >= WINDOW // 2)
    caught = sum(len(halves[family.blank(p)]) == 1 for p in _TOKENS) / len(_TOKENS)
    return caught * 0.5 + (1 - caught) * CUE


def _pairs() -> Iterable[tuple[Pair, Pair]]:
    """Every token with the offset of every other one."""
    return ((p, _minus(other, p)) for p in _TOKENS for other in _TOKENS if other != p)


def _minus(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


_SCORES: dict[str, Callable[[Family], float]] = {
    "relative_copy": _copy,
    "quadrant": _quadrant,
    "distance_threshold": _distance,
    "left_right_order": _order,
    "window_phase_trap": _trap,
}
