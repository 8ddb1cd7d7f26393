"""The network of all real configs: Swin-T; what differs by task stands in the task's base."""

_base_ = "./positions.py"

swin_t = dict(
    type="RelPosSwin",
    embed_dims=96,
    depths=(2, 2, 6, 2),
    num_heads=(3, 6, 12, 24),
    window_size=(7, 7),
)
