"""What this project adds to a library's default runtime.

It sets no `visualizer` and no `default_hooks`: the libraries set those already, and mmengine
refuses two bases that set the same key.
"""

_base_ = ["./hooks.py"]

# Lets plain mmengine, mim and mmdet tools find our classes too.
custom_imports = dict(imports=["relpos_mm"], allow_failed_imports=False)
