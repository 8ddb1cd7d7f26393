"""What a result says of the code that it comes from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relpos_mm import __version__
from relpos_mm.engine import versions


def git(root: Path, *words: str) -> str:
    options = ("user.name=t", "user.email=t@example.org", "commit.gpgsign=false")
    command = ["git", *(word for option in options for word in ("-c", option)), *words]
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    found = subprocess.run(command, cwd=root, env=own, check=True, capture_output=True, text=True)
    return found.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for name in ("relpos_mm", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "First", "--no-verify")
    return tmp_path


def test_a_checkout_is_named_by_its_commit_and_by_changes(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    (checkout / "untracked").touch()
    (checkout / "docs" / "file").write_text("2\n")
    assert versions._commit(checkout) == f"+{commit}"
    (checkout / "relpos_mm" / "file").write_text("2\n")
    assert versions._commit(checkout) == f"+{commit}.changed"


def test_git_variables_of_another_repository_are_not_followed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = versions._commit(checkout)
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert versions._commit(checkout) == expected


def test_code_without_a_checkout_has_its_version_alone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = checkout / "site-packages"
    inside.mkdir()
    assert versions._commit(inside) == ""  # the commit would be that of somebody else's project
    monkeypatch.setenv("PATH", str(inside))  # no git
    assert versions._commit(checkout) == "+unknown"


def test_a_commit_during_a_run_changes_nothing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_ROOT", checkout)
    versions.code_version.cache_clear()
    try:
        before = versions.versions()["relpos_mm"]
        assert before.startswith(f"{__version__}+")
        git(checkout, "commit", "-qm", "Second", "--allow-empty", "--no-verify")
        assert versions.versions()["relpos_mm"] == before
    finally:
        versions.code_version.cache_clear()
