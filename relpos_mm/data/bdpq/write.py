"""Writes the embedded data set: all of it or nothing, with a manifest."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.utils import track_progress_rich

from relpos_mm.data.bdpq.coco import coco_annotations, coco_file
from relpos_mm.data.bdpq.knobs import GENERATOR_VERSION, LETTERS, Knobs
from relpos_mm.data.bdpq.png import encode_png
from relpos_mm.data.bdpq.scene import compose_portrait, compose_scene, scene_splits

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_BATCH = 50


class OtherDataInTheWay(RuntimeError):
    """The target folder holds something that is not this data set."""


def make_mini(
    out: str | Path,
    *,
    seed: int = 0,
    knobs: Knobs | None = None,
    workers: int = 0,
    force: bool = False,
) -> Path:
    """Makes the data set, or does nothing when exactly this one is there already.

    Everything is written to a hidden folder beside `out` that is renamed at the end, so an
    interrupted run leaves no half-made data set.

    Args:
        out: Folder of the data set.
        seed: Seed of the whole set.
        knobs: Sizes and difficulty; None means the defaults.
        workers: Processes; 0 means one per core. The result does not depend on it.
        force: Make it again whatever recipe the embedded data set there has.

    Returns:
        The path of the manifest.

    Raises:
        OtherDataInTheWay: `out` holds another recipe and `force` is off, or no set of ours.
    """
    out, knobs = Path(out).resolve(), knobs or Knobs()
    recipe = {
        "generator": "bdpq",
        "version": GENERATOR_VERSION,
        "seed": seed,
        "knobs": knobs.as_json(),
    }
    if _is_there(out, recipe, force):
        logger.info("%s is there already, nothing to do", out)
        return out / MANIFEST
    with _workshop(out) as folder:
        made = _write_all(folder, seed, knobs, workers)
        (folder / MANIFEST).write_text(json.dumps(recipe | made, indent=1, sort_keys=True) + "\n")
    counts = ", ".join(f"{n} {name}" for name, n in made["counts"].items())
    logger.info("wrote %s: %s", out, counts)
    return out / MANIFEST


def _is_there(out: Path, recipe: dict[str, Any], force: bool) -> bool:
    """Whether `out` holds this recipe, complete; refuses when it holds anything else."""
    if not out.exists():
        return False
    manifest = _read_manifest(out)
    if manifest is None and (not out.is_dir() or any(out.iterdir())):
        raise OtherDataInTheWay(
            f"{out} exists and is no embedded data set (it has no {MANIFEST} of ours): "
            "name another folder with --out, or move it away yourself"
        )
    if manifest is None:
        return False
    if force:
        return False
    differing = [key for key in recipe if manifest.get(key) != recipe[key]]
    if differing:
        found = {key: manifest.get(key) for key in differing}
        raise OtherDataInTheWay(
            f"{out} was made with another {' and '.join(differing)} ({found}): "
            "add --force to replace it, or name another folder with --out"
        )
    lost = {
        name: wanted - there
        for name, wanted in manifest["counts"].items()
        if (there := sum(1 for _ in (out / name).rglob("*.png"))) != wanted
    }
    if lost:
        logger.warning("%s lacks pictures, making it again: %s", out, lost)
    return not lost


def _read_manifest(out: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((out / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.get("generator") == "bdpq" else None


@contextmanager
def _workshop(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when the block ends well, else vanishes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{out.name}.making-*"):
        if not _is_alive(int(left.name.rpartition("-")[2])):
            logger.info("removing %s, left by an interrupted run", left)
            shutil.rmtree(left, ignore_errors=True)
    folder = out.with_name(f".{out.name}.making-{os.getpid()}")
    folder.mkdir()
    try:
        yield folder
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write_all(folder: Path, seed: int, knobs: Knobs, workers: int) -> dict[str, Any]:
    """Writes pictures and annotations; returns their counts and checksums."""
    splits = scene_splits(knobs)
    sizes = {name: knobs.train_scenes if name == "train" else knobs.val_scenes for name in splits}
    for name in ("train", "val"):
        for letter in LETTERS:
            (folder / "cls" / name / letter).mkdir(parents=True)
    for kind in ("img", "seg"):
        for name in splits:
            (folder / kind / name).mkdir(parents=True)
    (folder / "ann").mkdir()

    tasks = [
        (kind, name, range(start, min(start + _BATCH, count)))
        for kind, counts in (
            ("cls", {"train": knobs.cls_train, "val": knobs.cls_val}),
            ("img", sizes),
        )
        for name, count in counts.items()
        for start in range(0, count, _BATCH)
    ]
    done = track_progress_rich(
        partial(_write_batch, folder, seed, knobs),
        tasks,
        nproc=workers or os.cpu_count() or 1,
        description="composing pictures",
    )

    counts: dict[str, int] = {}
    digests: dict[str, Any] = {}
    annotations: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in splits}
    for (kind, name, batch), (files, letters) in zip(tasks, done, strict=True):
        for path, digest in files:
            group = "/".join(path.split("/")[:2])
            counts[group] = counts.get(group, 0) + 1
            digests.setdefault(group, hashlib.sha256()).update(f"{path} {digest}\n".encode())
        if kind == "img":
            annotations[name] += letters
        assert len(batch) == len(letters)
    sha256 = {group: digest.hexdigest() for group, digest in digests.items()}
    for name, per_scene in annotations.items():
        text = coco_file(per_scene, splits[name].size_px)
        (folder / "ann" / f"{name}.json").write_text(text)
        sha256[f"ann/{name}.json"] = hashlib.sha256(text.encode()).hexdigest()
    return {"counts": counts, "sha256": sha256}


_Files = list[tuple[str, str]]


def _write_batch(
    folder: Path, seed: int, knobs: Knobs, kind: str, name: str, batch: range
) -> tuple[_Files, list[list[dict[str, Any]]]]:
    """Writes some pictures of one split; returns path and sha256 of each file, and annotations."""
    files: _Files = []
    annotations = []

    def save(path: str, pixels: Any) -> None:
        encoded = encode_png(pixels)
        (folder / path).write_bytes(encoded)
        files.append((path, hashlib.sha256(encoded).hexdigest()))

    for index in batch:
        if kind == "cls":
            scene = compose_portrait(knobs, val=name == "val", seed=seed, index=index)
            save(f"cls/{name}/{LETTERS[scene.letters[0][0]]}/{index:06d}.png", scene.picture)
        else:
            scene = compose_scene(knobs, scene_splits(knobs)[name], seed, index)
            save(f"img/{name}/{index + 1:06d}.png", scene.picture)
            save(f"seg/{name}/{index + 1:06d}.png", scene.labels)
        annotations.append(coco_annotations(scene.letters))
    return files, annotations
