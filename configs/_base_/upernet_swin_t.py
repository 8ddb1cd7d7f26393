"""ADE20K, UperNet 160k with Swin-T, without a position encoding yet. Sources: docs/recipes.md."""

_base_ = [
    "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py",
    "./runtime.py",
    "./swin_t.py",
]
checkpoint_file = None  # the base's converted weights; ours come through load_from

model = dict(
    backbone=dict(
        _delete_=True,
        **_base_.swin_t,
        drop_path_rate=0.3,  # as released (44.51 / 45.81 mIoU); the paper's text says 0.2
        small_map="pad",
    )
)

optim_wrapper = dict(
    constructor="PositionOptimConstructor",  # position parameters: as each encoding declares
    # As released: biases and the heads' batch norms (called `bn`) are decayed.
    paramwise_cfg=dict(_delete_=True, custom_keys=dict(norm=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    # From iteration 0 as released; mmseg's own config starts it after the warm-up.
    dict(type="PolyLR", power=1.0, eta_min=0.0, by_epoch=False, begin=0, end=160_000),
]
auto_scale_lr = dict(enable=False, base_batch_size=16)  # 8 GPUs x 2
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
# visualizer = dict(vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])

# Multi-scale test as released: the frame (2048, 512) is scaled, so a picture keeps the same size
# relative to the crop. mmseg's own `scale_factor=r` scales the original picture instead.
tta_scales = [(int(2048 * r), int(512 * r)) for r in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)]
tta_pipeline = [
    dict(type="LoadImageFromFile", backend_args=None),
    dict(
        type="TestTimeAug",
        transforms=[
            [dict(type="Resize", scale=scale, keep_ratio=True) for scale in tta_scales],
            [dict(type="RandomFlip", prob=p, direction="horizontal") for p in (0.0, 1.0)],
            [dict(type="LoadAnnotations")],
            [dict(type="PackSegInputs")],
        ],
    ),
]

task = "segmentation"
protocol = dict(name="ade20k-val-single-scale", scales=[(2048, 512)], flip=False, mode="whole")
tta_protocol = dict(name="ade20k-val-multi-scale-flip", scales=tta_scales, flip=True, mode="whole")
params_without_position = 59_918_540
