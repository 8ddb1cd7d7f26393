"""The proof that cells of a task may be compared: they differ in ``position`` and in nothing else.

Seeds are given to every cell by the planner, so equal configs mean equal trainings but for the
encoding and the seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmengine.config import Config

from relpos_mm.checks.leaves import differences, position_of
from relpos_mm.encodings import position_slug
from relpos_mm.engine.errors import UserError


def prove(configs: Mapping[str, Config], where: str) -> None:
    """Compare resolved configs with the first of them.

    Args:
        configs: Resolved configs of one task by file, one per variant.
        where: Task and world, for the message.

    Raises:
        UserError: A config differs from the first in another key, with all such keys; a config has
            no ``position``; or two have the same encodings.
    """
    wrong: list[str] = []
    lists: dict[str, str] = {}
    first, reference = next(iter(configs.items()))
    for path, config in configs.items():
        position = position_of(config)
        if position is None:
            wrong.append(f"{path}: its model has no `position` list, so it is no variant")
            continue
        if (twin := lists.setdefault(repr(position), path)) != path:
            wrong.append(f"{path}: has the encodings of {twin}, {position_slug(position)}")
        wrong += [
            f"{path}: {key} is {value!r}, but {expected!r} in {first}"
            for key, (value, expected) in differences(config, reference).items()
            if key.split(".")[-1] != "position"
        ]
    if wrong:
        raise UserError(
            f"{where}: its cells may differ in `position` and seed only. "
            "Refused:\n  " + "\n  ".join(wrong)
        )
