"""What a result says of the code that it comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from relpos_mm import __version__
from relpos_mm.engine import versions


def git(root: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "First", "--no-verify")
    git(tmp_path, "tag", "v9")  # a name that is no commit
    return tmp_path


def test_a_checkout_is_named_by_its_commit_and_by_changes(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "--short=12", "HEAD").strip()
    (checkout / "untracked.py").touch()
    assert versions._commit(checkout) == f"+{commit}"
    (checkout / "code.py").write_text("2\n")
    assert versions._commit(checkout) == f"+{commit}.changed"


def test_code_without_a_checkout_has_its_version_alone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = checkout / "site-packages"
    inside.mkdir()
    assert versions._commit(inside) == ""  # the commit would be that of somebody else's project
    monkeypatch.setenv("PATH", str(inside))
    assert versions._commit(checkout) == ""  # no git


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
