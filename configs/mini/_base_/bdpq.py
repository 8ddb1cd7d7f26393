"""What every mini config shares: the embedded data set, the small Swin, the run's frame."""

_base_ = ["../../_base_/runtime.py", "../../_base_/positions.py"]

data_root = "data/bdpq/"
letters = ("b", "d", "p", "q", "o", "x", "s", "t")
grounds = ("brick", "grass", "gravel", "weave-above", "weave-below")

# Same plan as Swin-T, a hundredth of its size. Absolute tables and, under the classification rule,
# small windows are made for pictures of 48 px, as Swin-T's are for 224 px.
mini_swin = dict(
    type="RelPosSwin",
    embed_dims=24,
    depths=(2, 2, 2, 2),
    num_heads=(1, 2, 4, 8),
    window_size=(4, 4),
    pretrain_img_size=48,
    drop_path_rate=0.0,
)
# Runs count iterations, because minutes hold no more than a few epochs. Lengths, rates and batches
# are each task's own; so are hooks, which each library's runtime sets.
train_cfg = dict(type="IterBasedTrainLoop")
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
# No loader processes: to send such small pictures from one costs more than to read them.
train_dataloader = dict(num_workers=0, sampler=dict(type="InfiniteSampler", shuffle=True))
val_dataloader = dict(num_workers=0, sampler=dict(type="DefaultSampler", shuffle=False))
test_dataloader = val_dataloader
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="PositionOptimConstructor",
    optimizer=dict(type="AdamW"),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0),
)

# The colours that segmentation pictures are drawn in: grounds muted, letters bright.
palette = [
    *([110, 60, 50], [60, 90, 50], [100, 100, 100], [70, 70, 120], [120, 110, 60]),
    *([230, 25, 75], [60, 180, 255], [255, 160, 0], [170, 60, 255]),
    *([0, 220, 120], [255, 225, 25], [255, 120, 200], [70, 240, 240]),
]
