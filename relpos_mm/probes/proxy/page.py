"""The page of the proxy tasks: what theory says beside what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from relpos_mm.analysis.tables import markdown_table
from relpos_mm.engine.saving import write_atomically

from .run import BATCH, ENCODINGS, LR, SCALES, STEPS
from .tasks import CUE, LETTERS, SIDE, TASKS
from .theory import Prediction, family_of, predict, without_position

NAME = "proxy_tasks"
_TOLERANCE = 0.03  # between a mean over seeds and a prediction

_INTRO = f"""# Proxy tasks: what an encoding can represent

One task per property of position, on {SIDE} x {SIDE} maps of letters, answered token by token by
one Swin block (32 channels, 4 heads) and nothing else. What one block can represent can be told
by thought, so every number below has a prediction beside it. These are *mechanism* numbers: they
tell what an encoding makes possible, not how good a detector it makes.

```bash
python tools/probe.py proxy --encodings noenc relonly --tasks quadrant --seeds 0
python tools/probe.py proxy --doc docs     # everything, some minutes; writes this page and its json
```

Another encoding, or a list of several, gets a name in `relpos_mm/probes/proxy/run.py`; what it
knows is stated in `relpos_mm/probes/proxy/theory.py`, or it has no prediction.

## How to read it

Numbers are shares of right answers on fresh pictures, mean ± standard deviation over seeds, n of
them. Seeds are paired: all encodings see the same pictures and start from the same values.

Theory rests on two facts. A token tells another one by its letter and by what the encoding says
of the *offset* between them; of its own *place* it knows what the encoding gives away. Whatever
is alike in both cannot be told apart, and the best guess among what is alike, counted over all
cases, bounds every training. **≤ 0.60** is such a bound. A number without a sign is a bound that
some parameters meet (for networks such as DPB's: in the limit of their width); whether a training
finds them is another question. In the window-phase trap low scores show that the place was read:
0.50 is who fell into it, {CUE:.2f} who could not.

| outcome | meaning |
| --- | --- |
| as predicted | within {_TOLERANCE} |
| below | within the bound, and nobody claims that it can be met |
| not reached | some parameters do better than what this short training found |
| contradicts | beyond the bound: theory or code is wrong; a test refuses such a page |
"""

_SCALE = """## Scale transfer

The networks trained on `relative_copy`, on larger maps, without retraining. *Canvas*: 12 x 12
tokens, letters and offset as in training; so it is when a detector's picture is padded or
cropped. *Enlarged*: 16 x 16, every letter covers 2 x 2 tokens and the offset doubles; so it is
when a picture is resized. Tables are carried over with their offsets *kept* (mode `extend`) or
*stretched* over the new map (`scale`).

Theory: what counts offsets in tokens is right on the canvas and wrong on the enlarged picture,
and only a table can be told which of the two it is: kept offsets suit the canvas, stretched ones
the enlarged picture, each fails on the other. Functions of the offset (DPB, CPB, rotary) have one
behaviour, that of kept offsets. An absolute table is always resized with the map, so it never
suits the canvas; index sines never suit the enlarged picture. Rotary forms repeat themselves, so
a larger map can hold a second offset of nearly the same angles. Attention has more keys to choose
from on a larger map, and a stretched peak is blunt, so what is right need not be 1.
"""


def outcome(task: str, prediction: Prediction, score: float) -> str:
    """Return what a mean score means for a prediction, in the words of the page."""
    # In the trap a smaller score is the stronger statement: that the place was read.
    beyond = score - prediction.score
    beyond = -beyond if task == "window_phase_trap" else beyond
    if beyond > _TOLERANCE:
        return "contradicts"
    if beyond >= -_TOLERANCE:
        return "as predicted"
    return "below" if prediction.kind == "bound" else "not reached"


def spread(scores: list[float]) -> str:
    """``mean ± standard deviation``, without the latter for one score."""
    deviation = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{mean(scores):.2f}{deviation}"


def render(record: Mapping[str, Any]) -> str:
    """Return the page of a record: ``seeds``, ``torch``, ``encodings`` with what was measured."""
    encodings = record["encodings"]
    parts = [_INTRO, "## All at a glance\n", _glance(encodings, record["seeds"])]
    for name, task in TASKS.items():
        floor = without_position(name)
        parts.append(
            f"\n## {name}\n\n{task.question} Needs: {task.property}. The best guess without any "
            f"position scores {floor:.2f}.\n"
        )
        parts.append(_task_table(name, encodings))
    parts += ["", _SCALE, _scale_table(encodings), ""]
    parts.append(
        f"## Settings\n\n{STEPS} steps of {BATCH} pictures, Adam, one cycle up to a rate of "
        f"{LR:g}, {LETTERS} letters, torch {record['torch']}. Few steps on purpose: what is not "
        "reached may be learnt later, and what is bounded never."
    )
    return "\n".join(parts) + "\n"


def _glance(encodings: Mapping[str, Any], seeds: list[int]) -> str:
    rows = [[f"`{n}`", *(spread(e["scores"][t]) for t in TASKS)] for n, e in encodings.items()]
    return f"{markdown_table(['encoding', *TASKS], rows)}\n\nn = {len(seeds)} seeds in every cell."


def _task_table(task: str, encodings: Mapping[str, Any]) -> str:
    rows = []
    for name, measured in encodings.items():
        position = ENCODINGS[name]
        family, prediction = family_of(position), predict(task, position)
        scores = measured["scores"][task]
        said, result = "not worked out", ""
        if prediction:
            sign = "≤ " if prediction.kind == "bound" and task != "window_phase_trap" else ""
            said = f"{sign}{prediction.score:.2f}"
            result = outcome(task, prediction, mean(scores))
        knows = family.why if family else ""
        rows.append([f"`{name}`", knows, said, spread(scores), f"{len(scores)}", result])
    header = ["encoding", "what it knows", "theory", "measured", "n", "outcome"]
    return markdown_table(header, rows)


def _scale_table(encodings: Mapping[str, Any]) -> str:
    rows = []
    for name, measured in encodings.items():
        scales = measured["scales"]
        cells = [spread(measured["scores"]["relative_copy"]), *(spread(scales[s]) for s in SCALES)]
        rows.append([f"`{name}`", *cells, f"{len(scales[next(iter(SCALES))])}"])
    return markdown_table(["encoding", "as trained", *SCALES, "n"], rows)


def write_page(record: Mapping[str, Any], folder: Path) -> None:
    """Write record and page into a folder."""
    texts = {"json": json.dumps(record, indent=1) + "\n", "md": render(record)}
    for ending, text in texts.items():
        write_atomically(folder / f"{NAME}.{ending}", text.encode())
