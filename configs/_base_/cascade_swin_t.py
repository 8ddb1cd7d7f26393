"""COCO, Cascade Mask R-CNN 3x with Swin-T, without a position encoding yet.

The base is mmdet's ConvNeXt-T config because its heads (4conv1fc, SyncBN, GIoU x 10, decoded
boxes), augmentation and 36-epoch schedule are those of the official Swin detector; mmdet ships no
Cascade Mask R-CNN with Swin-T. Values and sources: docs/recipes.md.
"""

# hooks.py and not runtime.py: the ConvNeXt config sets custom_imports too, and mmengine refuses
# two bases that set the same key.
_base_ = [
    "mmdet::convnext/cascade-mask-rcnn_convnext-t-p4-w7_fpn_4conv1fc-giou_amp-ms-crop-3x_coco.py",
    "./hooks.py",
    "./swin_t.py",
]
custom_imports = dict(imports=["relpos_mm"], allow_failed_imports=False)
checkpoint_file = None  # the base's ConvNeXt weights; ours come through load_from

model = dict(
    backbone=dict(
        _delete_=True,
        **_base_.swin_t,
        drop_path_rate=0.2,
        small_map="pad",
    )
)

optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    constructor="PositionOptimConstructor",  # position parameters: as each encoding declares
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    # As released: biases and the heads' batch norms (called `bn`) are decayed.
    paramwise_cfg=dict(custom_keys=dict(norm=dict(decay_mult=0.0))),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", by_epoch=True, begin=0, end=36, milestones=[27, 33], gamma=0.1),
]
auto_scale_lr = dict(enable=False, base_batch_size=16)  # 8 GPUs x 2
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
# visualizer = dict(vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])

task = "detection"
protocol = dict(name="coco-val2017-single-scale", scales=[(1333, 800)], flip=False)
params_without_position = 85_606_482
