"""The embedded data set `bdpq`: composed scenes for classification, detection and segmentation."""

from relpos_mm.data.bdpq.knobs import GENERATOR_VERSION, Knobs
from relpos_mm.data.bdpq.write import OtherDataInTheWay, make_mini

__all__ = ["GENERATOR_VERSION", "Knobs", "OtherDataInTheWay", "make_mini"]
