"""What a probe found, as one JSON file per model."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmengine.logging import print_log

from relpos_mm.engine.saving import write_atomically
from relpos_mm.engine.versions import versions
from relpos_mm.study.recipe import is_free

if TYPE_CHECKING:
    from .subject import Subject

#: Probes explain; they are no benchmark. Every record and every report says so.
LEVEL = "mechanism"
FILES = "probe_*.json"


@dataclass(frozen=True)
class Curve:
    """One line of one plot.

    Attributes:
        panel: Plot that the line belongs to; its title.
        x: Places on the horizontal axis, numbers or words.
        y: Values; None where there is nothing to measure.
        x_label: What the horizontal axis shows, with the unit.
        y_label: What the vertical axis shows, with the unit.
        series: What tells this line from another one of the same model in the same plot.
    """

    panel: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    x_label: str
    y_label: str
    series: str = ""


@dataclass
class Findings:
    """What a probe measured on one model.

    Attributes:
        numbers: The few values that models are compared by; None where there is nothing to
            measure. Names end in the unit (``_px``, ``_pct``) where there is one.
        curves: Lines of the plots.
        notes: What a reader has to know, such as what was left out.
        details: Everything else worth keeping; plain values.
    """

    numbers: dict[str, float | None] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Record:
    """Findings with everything that tells what was measured, under which settings, on which model.

    Attributes:
        probe: Name of the probe.
        settings: Values of its flags.
        task: Task of the config; empty for probes without a model.
        variant: Slug of the encoding.
        seed: Seed of the training, where the checkpoint says so.
        config: Config file.
        options: What ``--cfg-options`` changed in it.
        checkpoint: Weight file.
        checkpoint_sha256: Hash of its bytes.
        data_sha256: Fingerprint of the config's test data.
        findings: What was measured.
        versions: Of this package and of the libraries.
        level: Always ``mechanism``.
    """

    probe: str
    settings: dict[str, Any]
    variant: str
    findings: Findings
    task: str = ""
    seed: int | None = None
    config: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    data_sha256: str | None = None
    versions: Mapping[str, str | None] = field(default_factory=versions)
    level: str = LEVEL

    @property
    def changes(self) -> dict[str, Any]:
        """Those of ``options`` on which numbers depend: no folders and loader processes."""
        return {
            key: value
            for key, value in self.options.items()
            if not is_free(key) or "position" in key.split(".")
        }

    @property
    def label(self) -> str:
        """Variant and seed, for legends and tables."""
        return self.variant if self.seed is None else f"{self.variant}, seed {self.seed}"

    def file_name(self, defaults: Mapping[str, Any] | None = None) -> str:
        """Name of the record's file: the same measurement of the same model overwrites itself.

        Args:
            defaults: Of the settings; others, and changes of the config, have a hash in the name.
                By default they are these.
        """
        parts = [self.probe, self.task, self.variant]
        parts += [] if self.seed is None else [f"s{self.seed}"]
        parts += [(self.checkpoint_sha256 or "")[:8]]
        other = {
            key: value
            for key, value in self.settings.items()
            if defaults is not None and (key not in defaults or defaults[key] != value)
        }
        other |= {"cfg_options": self.changes} if self.changes else {}
        if other:
            text = json.dumps(_plain(other), sort_keys=True, default=str)
            parts += ["set" + hashlib.sha256(text.encode()).hexdigest()[:6]]
        return re.sub(r"[^\w.]+", "-", "_".join(["probe", *filter(None, parts)])) + ".json"


def record_of(
    probe: str,
    subject: Subject,
    settings: dict[str, Any],
    findings: Findings,
    options: Mapping[str, Any] | None = None,
) -> Record:
    """Return the record of a probe of one model."""
    return Record(
        probe=probe,
        settings=settings,
        variant=subject.variant,
        findings=findings,
        task=subject.task,
        seed=subject.seed,
        config=subject.cfg.filename,
        options=options or {},
        checkpoint=subject.checkpoint,
        checkpoint_sha256=subject.sha256,
        data_sha256=subject.data_sha256,
    )


def write_record(record: Record, folder: Path, defaults: Mapping[str, Any] | None = None) -> Path:
    """Write a record into a folder, see :meth:`Record.file_name`; NaN and infinity become null."""
    path = folder / record.file_name(defaults)
    content = {"probe": record.probe, "level": record.level, **_plain(asdict(record))}
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    return path


def _plain(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_plain(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def read_records(folders: Iterable[Path]) -> list[Record]:
    """Read all records in some folders, in the order of their names; a warning names the others."""
    paths = {path for folder in folders for path in folder.rglob(FILES)}
    return [record for path in sorted(paths) if (record := _read(path)) is not None]


def _read(path: Path) -> Record | None:
    try:
        content = json.loads(path.read_text())
        found = content.pop("findings")
        curves = [Curve(**curve) for curve in found.pop("curves")]
        return Record(**content, findings=Findings(**found, curves=curves))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        print_log(f"{path}: left out, no record of a probe ({why})", "current", logging.WARNING)
        return None
