"""The set-up's own logic: stamps, resuming, messages, the wheel cache. Nothing is installed."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def load(name: str) -> ModuleType:
    """Import ``tools/setup_steps/<name>.py`` without putting all of tools/ on the path."""
    if "setup_steps" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "setup_steps", TOOLS / "setup_steps" / "__init__.py"
        )
        assert spec is not None
        sys.modules["setup_steps"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"setup_steps.{name}")


stamps, progress, remedies, wheel, plan = (
    load(name) for name in ("stamps", "progress", "remedies", "mmcv_wheel", "plan")
)
sys.path.insert(0, str(TOOLS))
try:
    import bootstrap
finally:
    sys.path.remove(str(TOOLS))


class Chain:
    """Fake steps a, b, c that note when they run; ``broken`` names one that is interrupted."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken = ""
        self.missing = ""
        self.inputs = {"a": "1", "b": "1", "c": "1"}

    def steps(self) -> list:
        def action(name: str) -> None:
            if name == self.broken:
                raise KeyboardInterrupt
            self.ran.append(name)

        return [
            stamps.Step(
                name,
                name,
                (value,),
                lambda name=name: action(name),
                lambda name=name: name != self.missing,
            )
            for name, value in self.inputs.items()
        ]

    def run(self, path: Path) -> list[str]:
        """Run the chain; return what ran, also when it was interrupted."""
        self.ran = []
        try:
            count = stamps.run_steps(self.steps(), path, lambda line: None)
            assert count == len(self.ran)
        except KeyboardInterrupt:
            pass
        return self.ran


def test_interrupted_setup_continues(tmp_path: Path) -> None:
    chain, path = Chain(), tmp_path / "new" / "stamps.json"
    chain.broken = "b"
    assert chain.run(path) == ["a"]
    chain.broken = ""
    assert chain.run(path) == ["b", "c"]
    assert chain.run(path) == []


def test_changed_input_runs_its_step_and_the_later_ones(tmp_path: Path) -> None:
    chain, path = Chain(), tmp_path / "stamps.json"
    chain.run(path)
    chain.inputs["b"] = "2"
    chain.broken = "c"
    assert chain.run(path) == ["b"]
    # The stamp of c from before belongs to the old b and must not count.
    chain.broken = ""
    assert chain.run(path) == ["c"]
    chain.inputs["b"] = "1"
    assert chain.run(path) == ["b", "c"]


def test_lost_result_or_damaged_record_runs_again(tmp_path: Path) -> None:
    chain, path = Chain(), tmp_path / "stamps.json"
    chain.run(path)
    chain.missing = "b"
    assert chain.run(path) == ["b", "c"]
    chain.missing = ""
    path.write_text('{"a": "trunca')
    assert chain.run(path) == ["a", "b", "c"]
    path.write_text("[]")
    assert chain.run(path) == ["a", "b", "c"]


def test_stamps_tell_neighbouring_inputs_apart() -> None:
    def stamp(*inputs: str) -> str:
        return stamps.stamps_of([stamps.Step("x", "", inputs, lambda: None)])[0]

    assert len({stamp("ab", "c"), stamp("a", "bc"), stamp("abc"), stamp("abc", "")}) == 4


def test_lock_keeps_a_second_setup_out_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    hold = (
        f"import sys; sys.path.insert(0, {str(TOOLS)!r})\n"
        "from setup_steps.stamps import locked\n"
        "from pathlib import Path\n"
        f"with locked(Path({str(path)!r}), lambda: None):\n"
        "    print('held', flush=True); sys.stdin.readline()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waited = []

    def on_wait() -> None:
        waited.append(True)
        holder.kill()  # a killed set-up must not leave a lock behind

    with stamps.locked(path, on_wait):
        assert waited == [True]
    holder.communicate()


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("fatal error: error writing to x.s: No space left on device", "disk is full"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "out of memory"),
        ("error: command 'g++' failed: No such file or directory", "no C++ compiler"),
        ("/bin/sh: 1: g++: not found", "no C++ compiler"),
        ("fatal error: Python.h: No such file or directory", "headers of Python"),
        ("The virtual environment was not created: ensurepip is not available", "no venv module"),
        ("cc1plus: error: unrecognized command-line option '-std=c++20'", "too old"),
        ("The detected CUDA version (12.4) mismatches the version", "nvcc does not fit"),
        ("Failed to establish a new connection: [Errno -3] Temporary failure", "be reached"),
        ("ERROR: No matching distribution found for torch==2.14.1", "no such version"),
        ("something new", "unknown"),
    ],
)
def test_failure_names_step_cause_remedy_and_log(log: str, cause: str) -> None:
    message = remedies.failure_message("mmcv", "/x/mmcv.log", f"before\n{log}\nafter", 1)
    assert "step 'mmcv'" in message
    assert cause in message
    assert "/x/mmcv.log" in message
    assert remedies.diagnose(log).action in message


def test_killed_command_points_to_memory() -> None:
    assert "MAX_JOBS=1" in remedies.failure_message("mmcv", "log", "[3/78] g++ x.cpp", -9)


def test_run_logged_keeps_the_output_and_raises_with_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    progress.run_logged("a", [sys.executable, "-c", "print('fine')"], log, lambda *_: "")
    assert "fine" in log.read_text()
    code = "import sys; print('No space left on device'); sys.exit(3)"
    with pytest.raises(remedies.StepFailed, match=r"step 'b' \(exit status 3\)[\s\S]*disk is full"):
        progress.run_logged("b", [sys.executable, "-c", code], log, lambda *_: "")
    with pytest.raises(remedies.StepFailed, match="step 'c'"):
        progress.run_logged("c", [str(tmp_path / "absent")], log, lambda *_: "")


def test_a_new_command_is_not_judged_by_the_log_of_an_old_one(tmp_path: Path) -> None:
    log = tmp_path / "step.log"
    log.write_text("No space left on device\n")
    with pytest.raises(remedies.StepFailed, match="unknown"):
        progress.run_logged("a", [sys.executable, "-c", "raise SystemExit(1)"], log, lambda *_: "")


def test_compile_progress_estimates_from_ninja() -> None:
    describe = progress.CompileProgress()
    assert describe("Preparing metadata\n", 50) == "preparing"
    log = "  [1/78] g++ -c a.cpp\n  warning: x\n"
    assert describe(log, 60) == "1 of 78 files compiled"
    log += "  [26/78] g++ -c b.cpp\n"
    assert describe(log, 185) == "26 of 78 files compiled, about 4:20 left"


def test_pip_progress_shows_the_last_thing_pip_did() -> None:
    log = "Collecting torch\n  Downloading https://host/a/b/torch-2.whl (800.0 MB)\n\n"
    assert progress.pip_progress("2 minutes")(log, 1) == (
        "Downloading torch-2.whl (800.0 MB) (usually 2 minutes in all)"
    )
    log += "Installing collected packages: mpmath, sympy, torch\n"
    assert progress.pip_progress("2 minutes")(log, 1).startswith("Installing 3 packages (")


def test_cache_key_covers_what_the_binary_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    base = ("2.3.6", "2.14.1+cu130", "cp311", "cpu")
    keys = {wheel.cache_key(*base)}
    for position, other in enumerate(("2.3.7", "2.14.1+cpu", "cp312", "cuda13.0-sm9_0")):
        keys.add(wheel.cache_key(*base[:position], other, *base[position + 1 :]))
    monkeypatch.setattr(wheel, "CFLAGS", "-O0")
    keys.add(wheel.cache_key(*base))
    monkeypatch.setattr(wheel.platform, "libc_ver", lambda: ("glibc", "9.99"))
    keys.add(wheel.cache_key(*base))
    assert len(keys) == 7
    assert all(key == os.path.basename(key) for key in keys)


def test_only_a_whole_wheel_with_ops_is_taken_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "onedl_mmcv-2.3.6-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mmcv/__init__.py", "")
    assert wheel.valid_wheel(tmp_path) is None  # built where torch could not be seen
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("mmcv/_ext.cpython-311-x86_64-linux-gnu.so", "binary" * 1000)
    assert wheel.valid_wheel(tmp_path) == path
    path.write_bytes(path.read_bytes()[:2000])
    assert wheel.valid_wheel(tmp_path) is None


def test_wheel_is_built_once_and_then_taken_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheel, "describe_torch", lambda python: wheel.Torch("2.14.1", None, ()))
    monkeypatch.setattr(wheel, "prepare_source", lambda *_: tmp_path)
    content = "mmcv/__init__.py"
    builds = []

    def build(step: str, command: list[str], *_: object, **__: object) -> float:
        folder = Path(command[command.index("-w") + 1])
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "mmcv.whl", "w") as archive:
            archive.writestr(content, "")
        builds.append(step)
        return 1.0

    monkeypatch.setattr(wheel, "run_logged", build)

    def obtain() -> Path:
        arguments = (Path("python"), "onedl-mmcv==2.3.6", "cpu", tmp_path, tmp_path / "log")
        return wheel.cached_wheel(*arguments)

    with pytest.raises(remedies.StepFailed, match="no compiled ops"):
        obtain()
    assert not list(tmp_path.glob("relpos_mm/wheels/*/*.whl"))
    assert not list(tmp_path.glob("relpos_mm/build/*/"))  # a retry starts afresh
    content = "mmcv/_ext.so"
    built = obtain()
    assert built.parent.parent == tmp_path / "relpos_mm" / "wheels"
    assert obtain() == built
    assert len(builds) == 2
    built.write_bytes(b"damaged")
    assert obtain() == built
    assert len(builds) == 3


def test_ops_follow_gpu_nvcc_and_the_users_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    here, nowhere = {"CUDA_HOME": str(tmp_path)}, {"CUDA_HOME": str(tmp_path / "absent")}
    monkeypatch.setattr(wheel.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    assert wheel.wanted_ops(here) == "cuda"
    assert wheel.wanted_ops(nowhere) == "cpu"
    assert wheel.wanted_ops({**here, "RELPOS_OPS": "cpu"}) == "cpu"
    assert wheel.wanted_ops({**nowhere, "FORCE_CUDA": "1"}) == "cuda"
    with pytest.raises(remedies.StepFailed, match="gpu: must be cpu or cuda"):
        wheel.wanted_ops({"RELPOS_OPS": "gpu"})

    torch = wheel.Torch("2.14.1+cu130", "13.0", ("9.0",))
    assert wheel.build_flavour(torch, "cuda", here) == ("cuda13.0-sm9_0", "")
    assert wheel.build_flavour(torch, "cuda", nowhere)[0] == "cpu"
    older = wheel.Torch("2.9.1+cu128", "12.8", ("9.0",))
    flavour, remark = wheel.build_flavour(older, "cuda", here)
    assert flavour == "cpu"
    assert remark == "nvcc 13.0 does not fit torch's CUDA 12.8"


def test_build_environment_hides_the_gpu_from_a_cpu_build(tmp_path: Path) -> None:
    torch = wheel.Torch("2.14.1+cu130", "13.0", ("9.0",))
    env = wheel.build_environment("cpu", torch, Path("/v/bin/python"), tmp_path, {"MAX_JOBS": "1"})
    assert (env["CUDA_VISIBLE_DEVICES"], env["FORCE_CUDA"], env["MAX_JOBS"]) == ("", "0", "1")
    assert "-O2" in env["CFLAGS"]
    headers = tmp_path / "nvidia" / "cu13" / "include"
    headers.mkdir(parents=True)
    env = wheel.build_environment(
        "cuda13.0-sm9_0", torch, Path("/v/bin/python"), tmp_path, {"CUDA_HOME": "/c", "PATH": "/b"}
    )
    assert (env["FORCE_CUDA"], env["TORCH_CUDA_ARCH_LIST"]) == ("1", "9.0")
    assert (env["CPATH"], env["PATH"]) == (str(headers), "/v/bin:/b")
    assert int(env["MAX_JOBS"]) >= 1


def test_pins_are_exact_and_complete() -> None:
    text = (TOOLS.parent / "requirements.txt").read_text()
    pins = plan.read_pins(text)
    needed = {*plan.BUILD_TOOLS, *plan.TORCH, "onedl-mmcv", "opencv-python-headless"}
    assert needed <= set(pins)
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement, _, why = line.partition("#")
            assert "==" in requirement, line
            assert why.strip(), f"no reason given: {line}"


@pytest.mark.parametrize(
    ("running", "in_venv", "found", "chosen"),
    [
        ((3, 12), None, (), None),
        ((3, 13), None, ("python3.12", "python3.11"), "python3.11"),
        ((3, 9), None, ("python3.10",), "python3.10"),
        ((3, 12), (3, 11), ("python3.11",), "python3.11"),  # an existing environment stays
        ((3, 12), (3, 11), (), None),  # unless its interpreter is gone
        ((3, 12), (3, 9), ("python3.9",), None),
    ],
)
def test_choice_of_python(running: tuple, in_venv: tuple | None, found: tuple, chosen: str) -> None:
    which = {name: name for name in found}.get
    assert bootstrap.choose_python(running, in_venv, which) == chosen


def test_no_usable_python_is_one_clear_message() -> None:
    with pytest.raises(SystemExit, match=r"`python3` is 3\.13[\s\S]*remedy: install"):
        bootstrap.choose_python((3, 13), None, lambda name: None)


def test_a_folder_that_cannot_be_written_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(bootstrap, "VENV", str(tmp_path / "file" / ".venv"))
    monkeypatch.setattr(bootstrap.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert bootstrap.main() == 1
    message = capsys.readouterr().err
    assert message.startswith("Set-up cannot use a file or folder: ")
    assert str(tmp_path / "file") in message
    assert "remedy: " in message


def test_make_alone_sets_up() -> None:
    """Messages say "run make again" and "MAX_JOBS=1 make"."""
    said = subprocess.check_output(["make", "-n"], cwd=TOOLS.parent, text=True)
    assert "tools/bootstrap.py" in said


def test_compiler_wrapper_rewrites_the_standard(tmp_path: Path) -> None:
    echo = tmp_path / "g++"
    echo.write_text('#!/bin/sh\necho "$@"\n')
    echo.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def call(*arguments: str) -> str:
        command = [str(TOOLS / "cxx20"), *arguments]
        return subprocess.check_output(command, env=env, text=True).strip()

    assert call("-c", "a b.cpp", "-std=c++17") == "-c a b.cpp -std=c++20"
    assert call("g++", "-std=c++17", "-O2") == "-std=c++20 -O2"
