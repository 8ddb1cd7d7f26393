"""ImageNet-1k, DeiT-S for 300 epochs, without a position encoding yet. See docs/detr.md."""

_base_ = ["mmpretrain::deit/deit-small_4xb256_in1k.py", "./runtime.py"]

model = dict(
    backbone=dict(
        _delete_=True,
        type="RelPosViT",
        embed_dims=384,
        depth=12,
        num_heads=6,
        patch_size=16,
        pretrain_img_size=224,
    )
)
optim_wrapper = dict(
    constructor="PositionOptimConstructor",  # position parameters: as each encoding declares
    # `_delete_` drops the base's rules by name, which match nothing when there is no encoding.
    paramwise_cfg=dict(
        _delete_=True,
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
        custom_keys=dict(cls_token=dict(decay_mult=0.0)),
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=1024)  # 4 GPUs x 256
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
# visualizer = dict(vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])

task = "classification"
protocol = dict(
    name="imagenet1k-val-center-crop", resize_short_px=256, crop_px=224, interpolation="bicubic"
)
params_without_position = 21_975_016
# iRPE as its released DeiT trains it: product_50, with a bucket for the class token, decayed.
irpe = dict(type="ContextualRpe", ratio=1.9, skip=1, weight_decay=True)
