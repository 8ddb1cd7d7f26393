"""bdpq scenes, a small Cascade Mask R-CNN, without a position encoding yet."""

_base_ = [
    "mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py",
    "mmdet::_base_/default_runtime.py",
    "./bdpq.py",
]

roi_level = dict(out_channels=48, finest_scale=16)  # boxes are 10 to 40 px, COCO's 56 to 448
cascade = (
    (0.5, (0.1, 0.1, 0.2, 0.2)),
    (0.6, (0.05, 0.05, 0.1, 0.1)),
    (0.7, (0.033, 0.033, 0.067, 0.067)),
)
model = dict(
    data_preprocessor=dict(mean=[127.5] * 3, std=[64.0] * 3),
    backbone=dict(_delete_=True, **_base_.mini_swin, small_map="pad"),
    neck=dict(in_channels=[24, 48, 96, 192], out_channels=48, num_outs=4),
    rpn_head=dict(
        in_channels=48,
        feat_channels=48,
        anchor_generator=dict(scales=[4], strides=[4, 8, 16, 32]),
    ),
    roi_head=dict(
        bbox_roi_extractor=roi_level,
        bbox_head=[
            dict(
                type="Shared2FCBBoxHead",
                in_channels=48,
                fc_out_channels=128,
                roi_feat_size=7,
                num_classes=8,
                reg_class_agnostic=True,
                bbox_coder=dict(
                    type="DeltaXYWHBBoxCoder", target_means=[0.0] * 4, target_stds=stds
                ),
                loss_cls=dict(type="CrossEntropyLoss", use_sigmoid=False, loss_weight=1.0),
                loss_bbox=dict(type="SmoothL1Loss", beta=1.0, loss_weight=1.0),
            )
            for _, stds in cascade
        ],
        mask_roi_extractor=roi_level,
        mask_head=dict(num_convs=2, in_channels=48, conv_out_channels=48, num_classes=8),
    ),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=64)),
        rpn_proposal=dict(nms_pre=200, max_per_img=100),
        rcnn=[
            dict(
                assigner=dict(
                    type="MaxIoUAssigner",
                    pos_iou_thr=iou,
                    neg_iou_thr=iou,
                    min_pos_iou=iou,
                    match_low_quality=False,
                    ignore_iof_thr=-1,
                ),
                sampler=dict(
                    type="RandomSampler",
                    num=32,
                    pos_fraction=0.25,
                    neg_pos_ub=-1,
                    add_gt_as_proposals=True,
                ),
                mask_size=28,
                pos_weight=-1,
                debug=False,
            )
            for iou, _ in cascade
        ],
    ),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=50), rcnn=dict(max_per_img=20)),
)

dataset = dict(
    type="CocoDataset", data_root=_base_.data_root, metainfo=dict(classes=_base_.letters)
)
annotations = dict(type="LoadAnnotations", with_bbox=True, with_mask=True)
train_dataloader = dict(
    batch_size=8,
    dataset=dict(
        **dataset,
        ann_file="ann/train.json",
        data_prefix=dict(img="img/train/"),
        filter_cfg=dict(filter_empty_gt=True, min_size=1),
        # No flips anywhere: a mirrored b is a d.
        pipeline=[dict(type="LoadImageFromFile"), annotations, dict(type="PackDetInputs")],
    ),
)
val_dataloader = dict(
    batch_size=8,
    dataset=dict(
        **dataset,
        ann_file="ann/val.json",
        data_prefix=dict(img="img/val/"),
        test_mode=True,
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="Resize", scale_factor=1.0, keep_ratio=True),  # at its own size
            annotations,
            dict(
                type="PackDetInputs",
                meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor"),
            ),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type="CocoMetric", ann_file=_base_.data_root + "ann/val.json", metric=["bbox", "segm"]
)
test_evaluator = val_evaluator

train_cfg = dict(max_iters=120, val_interval=120)
optim_wrapper = dict(
    optimizer=dict(lr=2e-3, weight_decay=0.05),
    # New heads learn fast within minutes, the backbone is tuned slowly and keeps what it knows.
    # (A custom key overrides the rules of norms and biases; at this rate their decay is nothing.)
    paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.02))),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="MultiStepLR", by_epoch=False, begin=0, end=120, milestones=[90, 110], gamma=0.1),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
default_hooks = dict(
    logger=dict(interval=20),
    checkpoint=dict(by_epoch=False, interval=60, max_keep_ckpts=1),
)
log_processor = dict(by_epoch=False)

task = "detection"
protocol = dict(name="bdpq-val-single-scale", scales=[(128, 128)], flip=False)
