"""The report over toy results: what it says, and what it refuses to say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.record import Curve, Findings, Record, write_record
from relpos_mm.study.analysis import analyse
from relpos_mm.study.records import collect
from relpos_mm.study.report import write_report
from relpos_mm.study.sections import number
from relpos_mm.study.spec import Study

from .toys import PROTOCOL, toy_cells, toy_study, whole_study, write_result

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def report(study: Study | list[Study], out: Path, results: list[Path] | None = None) -> str:
    studies = study if isinstance(study, list) else [study]
    cells = [cell for each in studies for cell in toy_cells(each)]
    write_report(studies, results or [], out, cells)
    return (out / "report.md").read_text()


def row_of(text: str, *words: str) -> str:
    rows = [line for line in text.splitlines() if all(word in line for word in words)]
    assert rows, words
    return rows[0]


def test_a_flip_in_the_data_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    text = report(study, tmp_path / "out")
    assert "mechanism" in text
    assert "absolute alone: absonly - noenc | absolute on top: absrel - relonly" in text
    row = "| top-1 %, classification (toy-val) | helps (+4.02, +3.86 to +4.17, n = 6) | undecided ("
    assert row in row_of(text, "| top-1 %, classification", "helps")
    assert "| hurts (" in row_of(text, "| box AP, detection", "hurts")
    assert "hurts" in row_of(text, "| box AP | absonly - noenc |")
    assert "flip shown; the signs of the mean differences differ in 100%" in text
    assert "undecided in 1 of 2 combinations" in text
    assert "no flip could be shown at all" not in text  # one classification is decided
    told = "together are 6 comparisons. Were there no effect at all, up to 0.2 of them would be"
    assert f"{told} decided by chance; 3 are." in text
    assert "Written after the data" not in text
    assert "p, Holm" not in text  # families of one comparison
    assert "Six seeds are the fewest" in text
    assert "| 80.22 ± 0.15 (6) | 84.23 ± " in row_of(text, "top-1 %, classification", "(6)")
    assert "not compared with ours" in text
    row = row_of(text, "| absonly | 84.23 ± ")  # the paper's form, its number beside ours
    assert re.fullmatch(r"\| absonly \| 84.23 .* \(6\) \| 80.5 \| 37.* \| 49.0 \| .* \|", row)
    row = row_of(text, "| protocol | toy-val | ImageNet-1k val, 224 px, single crop | toy-val |")
    assert "3x, single scale" in row
    assert "| n/a | n/a | n/a | n/a |" in row_of(text, "box AP l")  # never 0
    assert "1.5" in row_of(text, "classification (toy-val)", "noenc", "1,000")  # 90 s of all starts


def test_families_show_both_p_and_remarks_are_marked_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = {"both": ["absonly - noenc", "relonly - noenc"]}
    study = toy_study(tmp_path, monkeypatch, questions=family, remarks=["It is the padding."])
    whole_study(study)
    text = report(study, tmp_path / "out")
    assert "Written after the data: It is the padding." in text
    row = row_of(text, "| top-1 % | relonly - noenc | undecided |")  # six seeds, two comparisons
    assert "| 0.031 | 0.062 |" in row
    assert "up to 0.0 of them would be decided by chance; 0 are." in text
    assert "On classification no question is decided, so no flip could be shown at all." in text


def test_numbers_of_other_protocols_are_never_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    other = {**PROTOCOL, "flip": True}
    for seed in study.seeds:
        write_result(study.folder, "classification", "noenc", seed, {"top1_pct": 80.0})
        write_result(study.folder, "classification", "absonly", seed, {"top1_pct": 90.0}, other)
    found = analyse(study, collect([study], toy_cells(study)))
    assert [line.difference.n for line in found.comparisons] == [0, 0, 0, 0]
    assert any("are not compared with each other" in note for note in found.notes)
    text = report(study, tmp_path / "out")
    assert "helps" not in re.sub(r"helps or hurts", "", text)


def test_tests_under_other_protocols_are_groups_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    shifted = {"protocol": {"name": "toy-shift"}, "metrics": {"box_ap": 0.2}, "data_sha256": "d"}
    write_result(study.folder, "detection", "noenc", 1, {"box_ap": 0.4}, tests={"s": shifted})
    found = analyse(study, collect([study], toy_cells(study)))
    assert {group.protocol for group in found.groups} == {"toy-val", "toy-shift"}
    text = report(study, tmp_path / "out")
    assert "20.00 (1)" in row_of(text, "| box AP, detection (toy-shift) | 20")


def test_other_recipes_are_not_compared_and_places_are_no_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)

    def config(epochs: int, root: str, position: list[str]) -> dict[str, Any]:
        loader = {"dataset": {"data_root": root}, "num_workers": len(root)}
        model = {"backbone": {"position": position}}
        return {
            "config_content": {
                "model": model,
                "train_cfg": {"max_epochs": epochs},
                "train_dataloader": loader,
                "load_from": root,
            }
        }

    place = ("classification", "noenc", 1, {"top1_pct": 80.0})
    write_result(study.folder, *place, **config(12, "data/x/", []))
    place = ("classification", "absonly", 1, {"top1_pct": 81.0})
    write_result(tmp_path / "copied", *place, **config(12, "/elsewhere/x/", ["a"]))
    place = ("classification", "absrel", 1, {"top1_pct": 82.0})
    write_result(tmp_path / "copied", *place, **config(36, "data/x/", ["b"]))
    found = analyse(study, collect([study], toy_cells(study), [tmp_path / "copied"]))
    assert [sorted(group.records) for group in found.groups] == [["absonly", "noenc"], ["absrel"]]
    assert any("data or recipe" in note for note in found.notes)


def test_copied_files_join_and_repeats_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    write_result(study.folder, "classification", "noenc", 1, {"top1_pct": 80.0})
    copied = tmp_path / "copied"
    write_result(copied, "classification", "absonly", 1, {"top1_pct": 81.0}, study=None)
    write_result(copied, "classification", "noenc", 1, {"top1_pct": 99.0})  # of the same cost
    write_result(copied, "poetry", "noenc", 1, {"top1_pct": 1.0}, study=None)
    (copied / "broken.json").write_text("{")
    (copied / "run" / "vis_data").mkdir(parents=True)
    others = ["summary.json", "evidence-val.bbox.json", "20261130_005025.json"]
    for other in [*others, "run/vis_data/scalars.json"]:
        (copied / other).write_text("[{}]\n[")
    found = collect([study], toy_cells(study), [copied])
    assert {(r.variant, r.metrics["top1_pct"]) for r in found.records} == {
        ("noenc", 80.0),
        ("absonly", 81.0),
    }
    told = "\n".join(found.notes)
    assert "contradicts" in told
    assert "names no task, variant and seed" in told
    assert "broken.json: cannot be read" in told
    assert len(found.notes) == 3
    (line,) = [c for c in analyse(study, found).comparisons if c.difference.n]
    assert (line.difference.mean, line.difference.verdict) == (1.0, "undecided")
    with pytest.raises(UserError, match="does not exist"):
        report(study, tmp_path / "out", [tmp_path / "nowhere"])


def test_unbalanced_seeds_nan_and_missing_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    for seed in (1, 2, 3):
        write_result(study.folder, "detection", "noenc", seed, {"box_ap": 0.4})
    write_result(study.folder, "detection", "absonly", 1, {"box_ap": float("nan")})
    write_result(study.folder, "detection", "absonly", 2, {"mask_ap": 0.3})
    write_result(study.folder, "detection", "absonly", 3, {"box_ap": 0.5})
    text = report(study, tmp_path / "out")
    assert "unbalanced seeds in detection, toy-val: noenc 3, absonly 3, absrel 0" in text
    assert "| 40.00 ± 0.00 (3) | 50.00 (1) | n/a | n/a |" in text
    assert "| undecided (+10.00, n = 1) |" in row_of(text, "| box AP, detection", "undecided")
    assert "no box_ap in detection, toy-val: absonly, seeds [1, 2]" in text


def test_missing_and_failed_cells_are_listed_and_left_overs_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch, seeds=[1])
    stale = write_result(study.folder, "classification", "noenc", 1, {"top1_pct": 7.0})
    stale.parent.rename(study.folder / "classification-noenc-s1-of-an-older-config")
    write_result(study.folder, "classification", "noenc", 1, {"top1_pct": 80.0})
    half = write_result(study.folder, "detection", "noenc", 1, {"box_ap": 0.77}, study=None)
    (half.parent / "attempts.jsonl").write_text('{"step": "train", "began": 1, "code": 0}\n')
    failed = study.folder / "classification-absonly-s1"
    failed.mkdir()
    (failed / "attempts.jsonl").write_text('{"step": "train", "began": 1, "code": 1}\n')
    (failed / "log.txt").write_text("CUDA out of memory\n")
    text = report(study, tmp_path / "out")
    assert "| 80.00 (1) | n/a |" in row_of(text, "| top-1 %, classification", "(1)")
    assert "| failed | train | CUDA out of memory |" in row_of(text, "classification-absonly-s1")
    assert "| waiting | train |" in row_of(text, "detection-relonly-s1")
    assert "| half-done | train |" in row_of(text, "detection-noenc-s1")
    assert "7.00" not in text


def test_a_cell_that_another_study_trained_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    place = (study.folder, "classification", "noenc", 1, {"top1_pct": 80.0})
    write_result(*place, study="the one it was copied from")
    text = report(study, tmp_path / "out")
    assert row_of(text, "| top-1 %, classification (toy-val) | 80.00 (1) |")


def test_differences_are_drawn_against_the_strength_of_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = {
        f"{place}{strength}": {"layout_pct": strength, "home_pct": home}
        for place, home in (("left", 60), ("all", 100))
        for strength in (0, 50)
    }
    study = toy_study(tmp_path, monkeypatch, data="bdpq", worlds=worlds)
    results = []
    for at, world in enumerate(worlds):
        for variant, gain in (("noenc", 0.0), ("absonly", 0.1)):
            metrics = {"box_ap": 0.4 + at * gain}
            more = {"cell_more": {"world": world}, "data_sha256": world}
            folder = tmp_path / world
            results += [
                write_result(folder, "detection", variant, seed, metrics, **more) for seed in (1, 2)
            ]
    text = report(study, tmp_path / "out", results)
    section = text.split("## Against layout strength")[1].split("\n## ")[0]
    (figure,) = re.findall(r"!\[box AP, toy-val\]\((.*)\)", section)
    drawn = (tmp_path / "out" / figure).read_text()
    assert all(f"absonly - noenc, home_pct {home}" in drawn for home in (60, 100))
    means = [row_of(text, "| box AP, detection, " + world, "n = 2") for world in worlds]
    assert [re.findall(r"[+-]\d+\.\d\d", row)[0] for row in means] == [
        "+0.00",
        "+10.00",
        "+20.00",
        "+30.00",
    ]
    rows = [line for line in section.splitlines() if "| absonly - noenc |" in line]
    told = [row.strip("| ").split(" | ")[2:] for row in rows]  # each world against the first
    assert [(row[0], row[1], row[3]) for row in told] == [
        ("left50", "+10.00", "2"),
        ("all0", "+20.00", "2"),
        ("all50", "+30.00", "2"),
    ]
    assert "a family of 3 would need 7 seeds" in section
    assert row_of(text, "| all50 | layout_pct 50, home_pct 100 |")
    (brief,) = json.loads((tmp_path / "out/summary.json").read_text())
    assert brief["tables"] == []  # those of many worlds fill pages
    assert brief["text"][-1] == (
        "Main metrics, 4 kinds of data: 0 helps, 0 hurts, 4 undecided; the report has each."
    )


def test_a_report_of_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch, seeds=[1])
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "a.json").write_text("{}")
    with pytest.raises(UserError, match=r"no result of toy found in .*toy, .*copied\.") as error:
        report(study, tmp_path / "out", [tmp_path / "copied"])
    assert "study.py run" in str(error.value)
    assert "a.json: is no result file" in str(error.value)
    assert not (tmp_path / "out").exists()


def test_several_studies_are_chapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    other = replace(study, name="other", title="Another")
    text = report([study, other, study], tmp_path / "out")
    assert re.findall(r"^# (.*)$", text, re.M) == ["A toy", "Another"]
    assert "the same cell" not in text
    with pytest.raises(UserError, match="two different studies are called toy"):
        report([study, replace(study, title="Another")], tmp_path / "out")


class _Sources(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            fetched = name in ("src", "srcset", "data", "poster") or (
                name.endswith("href")
                and tag not in ("a",)
                and not (value or "").startswith(("#", "data:"))
            )
            if fetched:
                self.found.append(f"{tag} {name}={value}")


def test_the_page_is_self_contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    report(study, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    sources = _Sources()
    sources.feed(page)
    assert sources.found == []
    assert not re.search(r"@import|url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    ids = re.findall(r'\bid="(s\d+-\d+)"', page)
    everything = re.findall(r'\bid="([^"]+)"', page)
    assert len(everything) == len(set(everything))
    assert {f"#{i}" for i in ids} == set(re.findall(r'href="(#s[\d-]+)"', page))
    markdown = (tmp_path / "out" / "report.md").read_text()
    files = re.findall(r"\]\((figure_\d+\.svg)\)", markdown)
    assert len(files) == 5  # differences of three metrics, curves of two tasks
    for file in files:
        assert (tmp_path / "out" / file).read_text().startswith("<svg")


@pytest.mark.train
def test_a_browser_shows_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is in PATH")
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    report(study, tmp_path / "out")
    page = tmp_path / "out" / "report.html"
    # The page tells its own width: nothing may stick out of a phone's screen.
    probe = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    page.write_text(page.read_text().replace("</body>", probe))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [browser, *flags, "--window-size=500,900", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    title = re.search(r"<title>(\d+)</title>", done.stdout)
    assert title is not None
    assert int(title[1]) <= 500
    assert "flip shown" in done.stdout


def test_numbers_are_printed_as_papers_do() -> None:
    assert number(0.469, "box_ap") == "46.90"
    assert number(-0.002, "mask_ap", sign=True) == "-0.20"
    assert number(81.25, "top1_pct") == "81.25"
    assert number(None, "box_ap") == "n/a"


def test_probes_of_the_studys_models_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    assert "Mechanism probes" not in report(study, tmp_path / "none")
    for seed, leakage in ((1, 0.25), (2, 0.75)):
        curve = Curve("stage 1", [0, 16], [0.0, leakage], "shift, px", "relative change")
        found = Findings({"stage 1, leakage": leakage}, [curve])
        record = Record("translation", {}, "absonly", found, task="detection", seed=seed)
        write_record(record, study.folder / "probes")
    text = report(study, tmp_path / "out")
    assert "## Mechanism probes" in text
    assert "0.5 ± 0.35 (2)" in row_of(text, "stage 1, leakage")
    assert "![translation, detection (mechanism)](figure_" in text
    changes = {"test_dataloader.num_workers": 0}, {"test_pipeline.1.scale": 96}
    for options, leakage in zip(changes, (1.25, 7.0), strict=True):
        found = Findings({"stage 1, leakage": leakage})
        record = Record("translation", {}, "absonly", found, "detection", 3, options=options)
        write_record(record, study.folder / "probes")
    text = report(study, tmp_path / "out")  # loader processes change no number, a scale does
    assert "0.75 ± 0.5 (3)" in row_of(text, "stage 1, leakage", "±")
    assert "translation, detection (mechanism), test_pipeline.1.scale as in the config: " in text
    assert "translation, detection (mechanism), test_pipeline.1.scale 96: " in text
    copied = report(study, tmp_path / "copied", [study.folder / "probes"])
    assert "is no result file" not in copied
