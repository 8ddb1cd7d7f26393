"""What a probe is: a name, flags of its own, and a measurement of one trained model."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from mmengine.registry import Registry

from .record import Findings, Record, record_of
from .subject import Subject, load_subject

PROBES = Registry("probe")


class Probe(ABC):
    """One experiment. Subclasses register under the name that the command line has.

    Attributes:
        about: What it asks, in one line.
        needs_model: Whether it measures trained models; otherwise it overrides :meth:`records`.
        unmeasured: Flags on which no record's numbers depend, so that its name does not either.
    """

    about: ClassVar[str]
    needs_model: ClassVar[bool] = True
    unmeasured: ClassVar[tuple[str, ...]] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027  none is fine
        """Add the probe's own flags; every one of them is recorded as a setting."""

    @abstractmethod
    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        """Measure one model.

        Args:
            subject: The model with its data.
            settings: Values of the probe's own flags by name.

        Raises:
            UserError: The probe cannot be done on this model; the message says why.
        """

    def records(
        self,
        models: Sequence[tuple[str, str]],
        settings: dict[str, Any],
        device: str,
        options: dict[str, Any] | None,
    ) -> Iterator[Record]:
        """Measure one model after the other.

        Args:
            models: Config and checkpoint of each.
            settings: Values of the probe's own flags by name.
            device: Such as ``cpu`` or ``cuda:0``.
            options: ``--cfg-options`` of every config.
        """
        for config, checkpoint in models:
            subject = load_subject(config, checkpoint, device, options)
            findings = self.measure(subject, settings)
            yield record_of(self.name, subject, settings, findings, options)

    @property
    def name(self) -> str:
        """The name that the probe is registered under."""
        return next(name for name, cls in PROBES.module_dict.items() if cls is type(self))
