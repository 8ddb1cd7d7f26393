"""bdpq letters, a small Swin classifier, without a position encoding yet."""

_base_ = [
    "mmpretrain::_base_/models/swin_transformer/tiny_224.py",
    "mmpretrain::_base_/default_runtime.py",
    "./bdpq.py",
]

model = dict(
    backbone=dict(_delete_=True, **_base_.mini_swin, out_indices=(3,), small_map="shrink"),
    head=dict(num_classes=8, in_channels=192),
    train_cfg=None,  # mixed pictures are not learnt within minutes
)
data_preprocessor = dict(num_classes=8, mean=[127.5] * 3, std=[64.0] * 3, to_rgb=True)

dataset = dict(
    type="CustomDataset",
    # In the order of the folder names, which is how mmpretrain numbers them.
    metainfo=dict(classes=tuple(sorted(_base_.letters))),
    with_label=True,
)
train_dataloader = dict(
    batch_size=32,
    dataset=dict(
        **dataset,
        data_root=_base_.data_root + "cls/train",
        # The letter moves against the window grid, as it does in scenes. No flips anywhere: a
        # mirrored b is a d.
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="RandomCrop", crop_size=48, padding=6, padding_mode="reflect"),
            dict(type="PackInputs"),
        ],
    ),
)
val_dataloader = dict(
    batch_size=100,
    dataset=dict(
        **dataset,
        data_root=_base_.data_root + "cls/val",
        test_mode=True,
        pipeline=[dict(type="LoadImageFromFile"), dict(type="PackInputs")],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="Accuracy", topk=(1,))
test_evaluator = val_evaluator

train_cfg = dict(max_iters=3000, val_interval=1000)
optim_wrapper = dict(
    optimizer=dict(lr=1e-3, weight_decay=0.05),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=False, begin=100, end=3000),
]
auto_scale_lr = dict(enable=False, base_batch_size=32)
default_hooks = dict(
    logger=dict(interval=100),
    checkpoint=dict(by_epoch=False, interval=1000, max_keep_ckpts=1),
)
log_processor = dict(by_epoch=False)

task = "classification"
protocol = dict(name="bdpq-val", scales=[(48, 48)], flip=False)
