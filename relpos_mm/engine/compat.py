"""One repair of mmengine that configs need before they can name mmseg's own base files."""

from mmengine.config import utils

# mmengine looks for a distribution called `mmsegmentation`; the maintained fork installs the same
# module under another name. With the module's own name it is found in either case.
utils.MODULE2PACKAGE["mmseg"] = "mmseg"
