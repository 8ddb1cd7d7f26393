"""Proxy tasks: labels, theory against untrained networks, known answers of training, the page."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from relpos_mm.encodings import position_modules
from relpos_mm.engine.errors import UserError
from relpos_mm.probes.cli import main
from relpos_mm.probes.proxy import run
from relpos_mm.probes.proxy.model import ProxyModel, carried
from relpos_mm.probes.proxy.page import NAME, outcome, render, spread
from relpos_mm.probes.proxy.run import DEFAULT, ENCODINGS, SEEDS, accuracy, scale_scores, train
from relpos_mm.probes.proxy.tasks import (
    BLANK,
    CUE,
    LETTERS,
    MARKER,
    RADIUS,
    SIDE,
    TASKS,
    WINDOW,
    relative_copy,
)
from relpos_mm.probes.proxy.theory import FAMILIES, Prediction, family_of, predict, without_position

from ..models.tiny import loud

KNOWN = [name for name, position in ENCODINGS.items() if family_of(position)]


def untrained(name: str, window: int = SIDE) -> ProxyModel:
    """A network of large random values, so that whatever it can tell apart shows."""
    torch.manual_seed(0)
    model = loud(ProxyModel(LETTERS, 3, ENCODINGS[name], (SIDE, SIDE), (window, window)))
    for encoding in position_modules(model).values():
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
    return model.eval()


def draw(task: str, training: bool = False, count: int = 200) -> tuple[Tensor, Tensor]:
    kind = TASKS[task]
    batch = (kind.train if training else kind.test)(count, Generator().manual_seed(0))
    assert batch.letters.shape == batch.labels.shape == (count, SIDE, SIDE)
    assert set(batch.labels.unique().tolist()) <= set(range(-1, kind.classes))
    return batch.letters, batch.labels


def test_the_letter_at_the_offset_is_asked() -> None:
    letters, labels = draw("relative_copy")
    assert (labels[:, 0] == -1).all()
    assert (labels[:, :, -2:] == -1).all()
    assert (labels[:, 5, 3] == letters[:, 4, 5]).all()
    assert (labels >= 0).sum() == 200 * 7 * 6
    large = relative_copy(5, Generator().manual_seed(0), (SIDE, SIDE), 2)
    assert (large.letters[:, 10:12, 6:8] == large.letters[:, 10:11, 6:7]).all()
    assert (large.labels[:, 10, 6] == large.letters[:, 8, 10]).all()


def test_quadrants_distances_and_sides_are_those_of_the_map() -> None:
    letters, labels = draw("quadrant")
    assert (letters == letters[:, :1, :1]).all()
    assert labels[0, [0, 0, 7, 7], [0, 7, 0, 7]].tolist() == [0, 1, 2, 3]
    for task in ("distance_threshold", "left_right_order"):
        letters, labels = draw(task)
        assert (letters.flatten(1) == MARKER).sum(1).unique().tolist() == [1]
        assert set(letters.unique().tolist()) == {BLANK, MARKER}
        for picture, answers in zip(letters[:20], labels[:20], strict=True):
            row, column = (picture == MARKER).nonzero()[0].tolist()
            for y in range(SIDE):
                near = [(y - row) ** 2 + (x - column) ** 2 <= RADIUS**2 for x in range(SIDE)]
                right = [x < column for x in range(SIDE)]
                if task == "distance_threshold":
                    wanted, hidden = near, y == row
                else:
                    wanted, hidden = right, True
                expected = [int(answer) for answer in wanted]
                expected[column] = -1 if hidden else expected[column]
                assert answers[y].tolist() == expected


def test_the_trap_is_set_in_training_only() -> None:
    letters, labels = draw("window_phase_trap", training=True)
    half = torch.arange(SIDE) % WINDOW >= WINDOW // 2
    asked = labels >= 0
    assert (labels == half.long())[asked].all()
    assert asked.sum() == 200 * SIDE * SIDE / 2
    for training in (True, False):
        letters, labels = draw("window_phase_trap", training)
        assert (letters == labels)[labels >= 0].float().mean() == pytest.approx(CUE)
    assert (labels >= 0).all()


def test_the_floors_are_those_of_the_drawn_answers() -> None:
    assert without_position("quadrant") == 0.25
    assert without_position("left_right_order") == 0.5
    assert without_position("window_phase_trap") == pytest.approx(CUE)
    _, labels = draw("distance_threshold", count=4000)
    far = (labels == 0).sum() / (labels >= 0).sum()
    assert without_position("distance_threshold") == pytest.approx(far.item(), abs=0.01)
    # The most frequent of all other letters.
    letters, labels = draw("relative_copy", count=1000)
    counts = torch.nn.functional.one_hot(letters.flatten(1), LETTERS).sum(1)
    others = counts[:, None] - torch.nn.functional.one_hot(letters.flatten(1), LETTERS)
    right = (others.argmax(-1) == labels.flatten(1))[labels.flatten(1) >= 0].float().mean()
    assert without_position("relative_copy") == pytest.approx(right.item(), abs=0.01)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("window", [SIDE, WINDOW])
def test_on_a_picture_of_one_letter_places_are_told_apart_as_theory_says(
    name: str, window: int
) -> None:
    family = family_of(ENCODINGS[name])
    with torch.no_grad():
        answers = untrained(name, window)(torch.full((1, SIDE, SIDE), 3))[0]
    alike = defaultdict(list)
    for row in range(SIDE):
        for column in range(SIDE):
            alike[family.blank((row, column))].append(answers[row, column])
    for group in alike.values():
        assert torch.allclose(torch.stack(group), group[0].expand(len(group), -1), atol=1e-4)
    firsts = torch.stack([group[0] for group in alike.values()])
    distances = torch.cdist(firsts, firsts) + torch.eye(len(firsts))
    assert distances.min() > 1e-4, "what is not alike differs"


@pytest.mark.parametrize("name", KNOWN)
def test_exchanging_letters_of_one_class_of_offsets_is_not_noticed(name: str) -> None:
    """And exchanging those of different classes is."""
    family, model = family_of(ENCODINGS[name]), untrained(name)
    here = (3, 4)
    generator = Generator().manual_seed(0)
    letters = torch.randint(LETTERS, (SIDE, SIDE), generator=generator)
    classes = defaultdict(list)
    for row in range(SIDE):
        for column in range(SIDE):
            if (row, column) != here:
                offset = (row - here[0], column - here[1])
                classes[family.offset(offset)].append((row, column))
    shuffled = letters.clone()
    for places in classes.values():
        order = torch.randperm(len(places), generator=generator).tolist()
        for place, other in zip(places, order, strict=True):
            shuffled[place] = letters[places[other]]
    with torch.no_grad():
        before, after = model(torch.stack((letters, shuffled)))[:, here[0], here[1]]
    assert torch.allclose(before, after, atol=1e-4)
    if len(classes) > 1:
        one, two = (places[0] for places in list(classes.values())[:2])
        swapped = letters.clone()
        swapped[one], swapped[two] = 0, 1
        back = swapped.clone()
        back[one], back[two] = 1, 0
        with torch.no_grad():
            before, after = model(torch.stack((swapped, back)))[:, here[0], here[1]]
        assert not torch.allclose(before, after, atol=1e-5)


def test_theory_in_numbers() -> None:
    said = {
        name: {task: predict(task, ENCODINGS[name]) for task in TASKS}
        for name in ("absonly", "relonly", "alibi", "lookhere", "irpe_k", "peg")
    }
    assert {p.score for t, p in said["absonly"].items() if t != "window_phase_trap"} == {1.0}
    assert said["absonly"]["window_phase_trap"] == Prediction(0.5, "reachable")
    assert said["relonly"]["quadrant"].score == 0.25
    assert said["relonly"]["window_phase_trap"] == Prediction(CUE, "bound")
    # Mirrored pictures have mirrored answers and the same distances.
    assert said["alibi"]["left_right_order"] == Prediction(0.5, "bound")
    assert said["lookhere"]["left_right_order"].score == 1.0
    # Two places, or one of them outside the map.
    assert 0.5 < said["lookhere"]["relative_copy"].score < 0.65
    assert 0.5 < said["irpe_k"]["relative_copy"].score < 0.65
    # Corners are known, edges by half: 4 + 24 / 2 + 36 / 4 of 64.
    assert said["peg"]["quadrant"].score == pytest.approx(25 / 64)
    # Two of eight columns are sure of their half of the window.
    assert said["peg"]["window_phase_trap"].score == pytest.approx(0.75 * CUE + 0.25 / 2)
    assert family_of(ENCODINGS["absrel"]) is FAMILIES["place"]
    assert predict("quadrant", ENCODINGS["irpe_v"]) is None


@pytest.mark.train
@pytest.mark.parametrize(
    ("task", "name", "score"),
    [
        ("relative_copy", "noenc", 0.12),
        ("relative_copy", "relonly", 1.0),
        ("quadrant", "relonly", 0.25),
        ("quadrant", "absonly", 1.0),
        ("distance_threshold", "noenc", 0.62),
        ("distance_threshold", "relonly", 1.0),
        ("left_right_order", "alibi", 0.5),
        ("left_right_order", "dpb", 1.0),
        ("window_phase_trap", "relonly", 0.8),
        ("window_phase_trap", "absonly", 0.5),
    ],
)
def test_training_finds_what_theory_says(task: str, name: str, score: float) -> None:
    model = train(task, ENCODINGS[name], seed=0)
    assert accuracy(model, TASKS[task].test, seed=0) == pytest.approx(score, abs=0.05)
    if (task, name) == ("relative_copy", "relonly"):
        scales = scale_scores(model, ENCODINGS[name], seed=0)
        for right, wrong in (
            ("canvas, offsets kept", "canvas, stretched"),
            ("enlarged, stretched", "enlarged, offsets kept"),
        ):
            assert scales[right] > scales[wrong] + 0.3


def test_the_same_seed_trains_the_same_network_and_pairs_the_rest(monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "STEPS", 3)
    state = train("quadrant", ENCODINGS["relonly"], 1).state_dict()
    again = train("quadrant", ENCODINGS["relonly"], 1).state_dict()
    assert all(torch.equal(value, again[key]) for key, value in state.items())
    monkeypatch.setattr(run, "LR", 0.0)
    first, bare = (train("quadrant", ENCODINGS[n], 1).state_dict() for n in ("relonly", "noenc"))
    assert all(torch.equal(value, first[key]) for key, value in bare.items())


def test_a_larger_map_keeps_offsets_or_stretches_them() -> None:
    model, position = untrained("relonly"), ENCODINGS["relonly"]
    (table,) = (m.relative_position_bias_table for m in position_modules(model).values())
    own = table.detach().view(2 * SIDE - 1, 2 * SIDE - 1, -1)
    for mode in ("extend", "scale"):
        larger = carried(model, position, (12, 12), mode)
        (table,) = (m.relative_position_bias_table for m in position_modules(larger).values())
        inner = table.detach().view(23, 23, -1)[4:-4, 4:-4]
        assert torch.equal(inner, own) == (mode == "extend")
        assert torch.equal(larger.head.weight, model.head.weight)


def test_outcomes() -> None:
    bound, reachable = Prediction(0.6, "bound"), Prediction(0.6, "reachable")
    assert outcome("quadrant", bound, 0.61) == "as predicted"
    assert outcome("quadrant", bound, 0.4) == "below"
    assert outcome("quadrant", reachable, 0.4) == "not reached"
    assert outcome("quadrant", reachable, 0.7) == "contradicts"
    assert outcome("window_phase_trap", bound, 0.5) == "contradicts", "it fell into the trap"
    assert outcome("window_phase_trap", reachable, 0.7) == "not reached"
    assert spread([0.25, 0.75]) == "0.50 ± 0.35"
    assert spread([0.25]) == "0.25"


def test_the_page_is_that_of_its_record_and_contradicts_no_theory(repo_root: Path) -> None:
    record = json.loads((repo_root / "docs" / f"{NAME}.json").read_text())
    page = (repo_root / "docs" / f"{NAME}.md").read_text()
    assert page == render(record), "run python tools/probe.py proxy --doc docs"
    assert record["seeds"] == list(SEEDS)
    assert tuple(record["encodings"]) == DEFAULT
    for measured in record["encodings"].values():
        assert measured["scores"].keys() == TASKS.keys()
        assert {len(scores) for scores in measured["scores"].values()} == {len(SEEDS)}
    tables = [line for line in page.splitlines() if line.startswith("| `")]
    assert not [line for line in tables if "contradicts" in line]


def test_the_command_writes_records_and_refuses_unknown_names(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "STEPS", 2)
    short = ["--encodings", "noenc", "peg", "--seeds", "0", "1", "--out", str(tmp_path)]
    main(["proxy", *short, "--tasks", "quadrant"])
    assert "n = 2 seeds" in (tmp_path / "probe_proxy.md").read_text()
    (path,) = tmp_path.glob("probe_proxy_peg_set*.json")  # tasks and seeds are not the usual ones
    found = json.loads(path.read_text())["findings"]
    assert len(found["details"]["scores"]["quadrant"]) == 2
    assert "quadrant, standard deviation" in found["numbers"]
    assert "| quadrant" in capsys.readouterr().out
    for wrong, message in (
        (["--encodings", "rope"], "no encoding is called 'rope'; known: noenc, absonly"),
        (["--tasks", "colour"], "no task is called 'colour'"),
        (["--tasks", "quadrant", "--doc", str(tmp_path)], "--doc: the page needs all tasks"),
    ):
        with pytest.raises(UserError, match=message):
            main(["proxy", *wrong])
