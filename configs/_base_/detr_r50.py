"""COCO, DETR with ResNet-50 for 150 epochs, without a position encoding yet. See docs/detr.md."""

_base_ = ["mmdet::detr/detr_r50_8xb2-150e_coco.py", "./hooks.py", "./detr_positions.py"]
# relpos_mm.models.detr imports mmdet, so the package does not import it by itself.
custom_imports = dict(imports=["relpos_mm", "relpos_mm.models.detr"], allow_failed_imports=False)

model = dict(
    type="RelPosDETR",
    positional_encoding=None,  # the sines stand in the encoder's list like any other encoding
    encoder=dict(
        _delete_=True,
        num_layers=6,
        embed_dims=256,
        num_heads=8,
        feedforward_channels=2048,
        dropout=0.1,
        grid_size=(25, 42),  # 800 x 1333 px at stride 32
        window_size=(42, 42),
    ),
)
optim_wrapper = dict(
    constructor="PositionOptimConstructor",  # position parameters: as each encoding declares
)
auto_scale_lr = dict(enable=False, base_batch_size=16)  # 8 GPUs x 2
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
# visualizer = dict(vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])

task = "detection"
protocol = dict(name="coco-val2017-single-scale", scales=[(1333, 800)], flip=False)
params_without_position = 41_575_061
