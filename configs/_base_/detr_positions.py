"""Encodings that the leaves of DETR put together."""

# The encoding of every published DETR.
sines = dict(type="Sinusoid2d", form="detr", site="qk_input")
# iRPE as its released DETR trains it: Xavier's initial values, decayed like all other weights.
irpe = dict(type="ContextualRpe", ratio=2.0, init="xavier", weight_decay=True)
