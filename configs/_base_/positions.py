"""The encodings of Swin's leaves by slug, for the three tasks and their mini forms alike.

Each stands alone, as its method was published: rotary encodings and Swin V2's bias replace the
table, they do not add to it. Rows of the Swin paper's Table 4 stand in their leaves themselves.
"""

positions = dict(
    sin2d=[dict(type="Sinusoid2d")],
    abswin=[dict(type="AbsoluteWin")],
    logcpb=[dict(type="LogCoordBias", cosine=True)],  # Swin V2's bias with its cosine attention
    dpb=[dict(type="DynamicBias")],
    decomposed=[dict(type="DecomposedBias")],
    rope_axial=[dict(type="AxialRope", theta=50.0)],  # rope-vit's base for Swin; ViT has 100
    rope_mixed=[dict(type="MixedRope")],
    peg=[dict(type="ConvPosition")],
    lepe=[dict(type="LocalEnhanced")],
    irpe_k=[dict(type="ContextualRpe", rpe_on="k")],
    irpe_qkv=[dict(type="ContextualRpe", rpe_on="qkv")],
    shaw=[dict(type="ShawRelative")],
    disentangled=[dict(type="Disentangled")],
    lookhere=[dict(type="DirectedDistance")],
    biasonly=[dict(type="RelativeBias", content=False)],  # Table 4: "rel. pos. w/o app."
)
