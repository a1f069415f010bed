"""The words and numbers that arguments are made of, apart from the types, so that reading them costs nothing."""

PROPOSALS = ("point", "iid", "without_replacement")

OWNERS = ("source", "advanced", "label")
"""Which token's flag supervises row t: x[t], x[t+1] or x[t+2]."""

DENOMINATORS = ("supervised", "mask", "rows")
RESTRICTED_TARGETS = ("renormalised", "raw")
GATES = ("argmax", "none")
DIVERGENCES = ("cross_entropy", "kl")
REDUCTIONS = ("sum", "mean")
MAP_CONVENTIONS = ("offset", "absolute")

LAWS = ("paper", "length_scaled")

MASK_FORMS = ("allowed", "blocked", "additive", "packed8", "packed16", "packed32")
"""How a mask says that a row sees a column: true, false, zero, or a set bit (bit i of word w is column w·width + i)."""

ROW_ANCHORS = ("start", "absolute")
"""Where the node of step s at anchor a stands in its step's block: at row a, or at row a + s."""

ROOT_ROW = -1
"""The verification row of the pending token, which no drafted node is."""
PADDING_ROW = -2
"""A verification row that belongs to nobody."""
DRAFT_KV = ("recomputed", "kept")
"""Where a drafter's rows of accepted tokens come from: the target's features, or drafting itself."""
