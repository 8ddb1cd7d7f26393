"""Damaged installations are noticed, each with the command that repairs it."""

import ast
import importlib.machinery
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from relpos_mm import environment
from relpos_mm.environment import MissingOps, check_environment, require_ops, warn_if_no_ops

GOOD = {
    "torch": "2.14.1+cu130",
    "torchvision": "0.29.1",
    "onedl-mmengine": "0.10.12",
    "onedl-mmcv": "2.3.6",
    "onedl-mmdetection": "3.5.1",
    "onedl-mmsegmentation": "1.4.2",
    "onedl-mmpretrain": "1.3.6",
    "setuptools": "84.2.1",
}


@pytest.fixture
def mmcv_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand an mmcv without compiled ops in for the installed one; return its folder."""
    folder = tmp_path / "mmcv"
    folder.mkdir()
    spec = importlib.machinery.ModuleSpec("mmcv", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(environment.importlib.util, "find_spec", {"mmcv": spec}.get)
    return folder


def compile_ops(folder: Path) -> None:
    (folder / f"_ext{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"not loadable")


def test_the_tested_set_has_no_findings(mmcv_files: Path) -> None:
    compile_ops(mmcv_files)
    assert check_environment(GOOD.get) == []


def test_missing_ops_are_noticed_without_importing_mmcv(mmcv_files: Path) -> None:
    with pytest.warns(UserWarning, match=r"without its compiled ops.*--no-build-isolation"):
        warn_if_no_ops()
    (finding,) = check_environment(GOOD.get)
    assert finding.level == "error"
    assert "mmcv._ext" in finding.what
    # pip's cache still has the wheel without ops.
    assert "--no-cache-dir" in finding.remedy
    with pytest.raises(MissingOps, match=r"RoIAlign and NMS cannot run[\s\S]*remedy: make clean"):
        require_ops()

    compile_ops(mmcv_files)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_no_ops()


def test_b095_ops_of_another_torch_are_told_apart(
    mmcv_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ops(mmcv_files)

    def undefined_symbol(name: str) -> None:
        if name == "mmcv.ops":
            raise ImportError("_ext.so: undefined symbol: _ZN3c10")

    monkeypatch.setattr(environment.importlib, "import_module", undefined_symbol)
    with pytest.raises(MissingOps, match=r"undefined symbol.*built for another torch"):
        require_ops()


def test_a_copy_without_the_checkout_names_the_wrapper_of_a_checkout(
    mmcv_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "relpos_mm" / "environment.py"))
    with pytest.raises(MissingOps, match=r"CXX=\$PWD/tools/cxx20"):
        require_ops()


def test_absent_mmcv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    warn_if_no_ops()  # nothing to say: the import of mmcv itself will tell
    with pytest.raises(MissingOps, match="mmcv is not installed"):
        require_ops()


@pytest.mark.parametrize(
    ("changes", "level", "what", "remedy"),
    [
        ({"onedl-mmcv": "2.2.0"}, "error", "onedl-mmcv 2.2.0 is outside .* >=2.3.6", "make setup"),
        ({"onedl-mmengine": "0.11.0"}, "error", "outside", 'pip install "onedl-mmengine>=0.10.12'),
        ({"onedl-mmdetection": None}, "error", "onedl-mmdetection is not installed", "make setup"),
        (
            {"mmcv-lite": "2.1.0"},
            "error",
            "both installed",
            "pip uninstall -y onedl-mmcv mmcv-lite",
        ),
        (
            {"onedl-mmdetection": None, "mmdet": "3.3.0"},
            "note",
            "mmdet 3.3.0 in place of onedl-mmdetection: should work, is not tested",
            "make setup",
        ),
        ({"torchvision": "0.24.1"}, "error", "does not belong to torch", "torchvision==0.29"),
        ({"transformers": "5.1.0"}, "error", "transformers 5.1.0", '"transformers<5"'),
    ],
)
def test_b092_unfitting_versions(
    mmcv_files: Path, changes: dict, level: str, what: str, remedy: str
) -> None:
    compile_ops(mmcv_files)
    (finding,) = check_environment({**GOOD, **changes}.get)
    assert finding.level == level
    assert re.search(what, finding.what)
    assert remedy in finding.remedy
    assert str(finding).count("\n") == 1


def test_b093_originals_need_an_older_setuptools(mmcv_files: Path) -> None:
    compile_ops(mmcv_files)
    versions = {**GOOD, "onedl-mmcv": None, "mmcv": "2.2.0"}
    note, error = check_environment(versions.get)
    assert (note.level, error.level) == ("note", "error")
    assert "pkg_resources" in error.what
    assert len(check_environment({**versions, "setuptools": "81.0.0"}.get)) == 1


def dependencies(repo_root: Path) -> dict[str, Requirement]:
    """Return what pyproject.toml asks for; tomllib is not in Python 3.10."""
    text = (repo_root / "pyproject.toml").read_text()
    block = text.split("\ndependencies = [", 1)[1].split("]", 1)[0]
    lines = [line.strip().strip('",') for line in block.splitlines()]
    return {item.name: item for item in map(Requirement, filter(None, lines))}


def test_b092_supported_windows_are_those_of_the_package_metadata(repo_root: Path) -> None:
    declared = dependencies(repo_root)
    for name, window in environment.SUPPORTED.items():
        assert str(declared[name].specifier) == str(Requirement(f"{name}{window}").specifier)
    pinned = (repo_root / "requirements.txt").read_text()
    for name, window in environment.SUPPORTED.items():
        version = pinned.split(f"\n{name}==", 1)[1].split()[0]
        assert Requirement(f"{name}{window}").specifier.contains(version)


def test_what_the_package_imports_is_what_it_asks_for(repo_root: Path) -> None:
    imported = set()
    for file in (repo_root / "relpos_mm").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    distributions = {
        "PIL": "pillow",
        "mmcv": "onedl-mmcv",
        "mmdet": "onedl-mmdetection",
        "mmengine": "onedl-mmengine",
        "mmpretrain": "onedl-mmpretrain",
        "mmseg": "onedl-mmsegmentation",
        "yaml": "pyyaml",
    }
    # mmcv brings OpenCV; the others are asked for where they are used, with a message.
    elsewhere = {"cv2", "safetensors", "timm", "skimage", "hotcoco", "submitit"}
    outside = imported - sys.stdlib_module_names - elsewhere - {"relpos_mm"}
    assert {distributions.get(name, name) for name in outside} <= dependencies(repo_root).keys()


def doctor(repo_root: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/doctor.py", *arguments]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=repo_root, env=env, capture_output=True, text=True)


def test_doctor_prints_versions_and_finds_this_installation_sound(repo_root: Path) -> None:
    done = doctor(repo_root, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "onedl-mmcv" in done.stdout
    assert "0 errors" in done.stdout


def test_doctor_works_where_the_libraries_do_not(repo_root: Path, tmp_path: Path) -> None:
    for name in ("torch", "torchvision", "mmengine"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('compiled for NumPy 1.x')\n")
    done = doctor(repo_root, path=str(tmp_path))
    assert done.returncode == 1
    assert "import mmengine fails: ImportError: compiled for NumPy 1.x" in done.stdout
    assert "remedy: " in done.stdout
