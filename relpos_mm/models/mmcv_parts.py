"""mmcv's transformer parts, imported without the notice that its module gives on every import."""

import warnings

with warnings.catch_warnings():
    # It says that another class of that module has moved; under -W error it would end the import.
    warnings.simplefilter("ignore", ImportWarning)
    from mmcv.cnn.bricks.transformer import FFN, PatchEmbed

__all__ = ["FFN", "PatchEmbed"]
