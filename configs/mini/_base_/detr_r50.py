"""bdpq scenes, a small DETR, without a position encoding yet."""

# Pictures, boxes and the frame of the run are those of the other mini detector.
_base_ = ["./cascade_swin_t.py", "../../_base_/detr_positions.py"]
custom_imports = dict(imports=["relpos_mm", "relpos_mm.models.detr"], allow_failed_imports=False)

attention = dict(embed_dims=64, num_heads=4, dropout=0.0, batch_first=True)
model = dict(
    _delete_=True,
    type="RelPosDETR",
    num_queries=25,
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[127.5] * 3,
        std=[64.0] * 3,
        bgr_to_rgb=True,
        pad_size_divisor=1,
    ),
    # The plan of ResNet-50, an eighth as wide, from scratch and without its last stage: 128 px
    # become 8 x 8 tokens.
    backbone=dict(
        type="ResNet",
        depth=50,
        base_channels=8,
        num_stages=3,
        strides=(1, 2, 2),
        dilations=(1, 1, 1),
        out_indices=(2,),
        norm_cfg=dict(type="BN", requires_grad=True),
        norm_eval=False,
        style="pytorch",
    ),
    neck=dict(
        type="ChannelMapper",
        in_channels=[128],
        kernel_size=1,
        out_channels=64,
        act_cfg=None,
        norm_cfg=None,
        num_outs=1,
    ),
    encoder=dict(
        num_layers=2,
        embed_dims=64,
        num_heads=4,
        feedforward_channels=128,
        dropout=0.0,
        grid_size=(8, 8),
        window_size=(8, 8),
    ),
    decoder=dict(
        num_layers=2,
        layer_cfg=dict(
            self_attn_cfg=attention,
            cross_attn_cfg=attention,
            ffn_cfg=dict(
                embed_dims=64,
                feedforward_channels=128,
                num_fcs=2,
                ffn_drop=0.0,
                act_cfg=dict(type="ReLU", inplace=True),
            ),
        ),
        return_intermediate=True,
    ),
    positional_encoding=None,
    bbox_head=dict(
        type="DETRHead",
        num_classes=8,
        embed_dims=64,
        loss_cls=dict(
            type="CrossEntropyLoss",
            bg_cls_weight=0.1,
            use_sigmoid=False,
            loss_weight=1.0,
            class_weight=1.0,
        ),
        loss_bbox=dict(type="L1Loss", loss_weight=5.0),
        loss_iou=dict(type="GIoULoss", loss_weight=2.0),
    ),
    train_cfg=dict(
        assigner=dict(
            type="HungarianAssigner",
            match_costs=[
                dict(type="ClassificationCost", weight=1.0),
                dict(type="BBoxL1Cost", weight=5.0, box_format="xywh"),
                dict(type="IoUCost", iou_mode="giou", weight=2.0),
            ],
        )
    ),
    test_cfg=dict(max_per_img=25),
)

# DETR learns slowly: longer than the other mini configs, and with the clipping of its recipe.
train_cfg = dict(max_iters=1200, val_interval=1200)
optim_wrapper = dict(
    optimizer=dict(lr=5e-4, weight_decay=1e-4),
    paramwise_cfg=dict(_delete_=True),
    clip_grad=dict(max_norm=0.1),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type="MultiStepLR", by_epoch=False, begin=0, end=1200, milestones=[1000], gamma=0.1),
]
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
