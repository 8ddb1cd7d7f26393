"""ImageNet-1k, Swin-T for 300 epochs, without a position encoding yet. Sources: docs/recipes.md."""

_base_ = ["mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py", "./runtime.py", "./swin_t.py"]

model = dict(
    backbone=dict(
        _delete_=True,
        **_base_.swin_t,
        drop_path_rate=0.2,
        out_indices=(3,),
        small_map="shrink",
    )
)
# 8 GPUs x 128, where mmpretrain runs 16 x 64; the release drops an incomplete last batch.
train_dataloader = dict(batch_size=128, drop_last=True)

optim_wrapper = dict(
    constructor="PositionOptimConstructor",  # position parameters: as each encoding declares
    # `_delete_` drops the base's rules by name, which match nothing when there is no encoding.
    paramwise_cfg=dict(
        _delete_=True, norm_decay_mult=0.0, bias_decay_mult=0.0, flat_decay_mult=0.0
    ),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, end=20, convert_to_iter_based=True),
    # Per iteration as released; mmpretrain steps it once per epoch.
    dict(
        type="CosineAnnealingLR",
        eta_min=1e-5,
        by_epoch=True,
        begin=20,
        end=300,
        convert_to_iter_based=True,
    ),
]
auto_scale_lr = dict(enable=False, base_batch_size=1024)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=3))
# visualizer = dict(vis_backends=[dict(type="LocalVisBackend"), dict(type="TensorboardVisBackend")])

task = "classification"
protocol = dict(
    name="imagenet1k-val-center-crop", resize_short_px=256, crop_px=224, interpolation="bicubic"
)
params_without_position = 28_265_032
