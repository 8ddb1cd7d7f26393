"""Probes of trained models: small experiments that show how an encoding works, not how good it is.

Each probe is one file with one class, registered in :data:`relpos_mm.probes.probe.PROBES`; the
import below makes it known to ``tools/probe.py`` and to the report of a study.
"""

from . import ablate, expressivity, padding, proxy, readout, size, translation

__all__ = ["ablate", "expressivity", "padding", "proxy", "readout", "size", "translation"]
