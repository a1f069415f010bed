"""Verification masks: which columns a row of the verification input sees, in the forms that engines hand out.

The input is the root, then the rows of the tree; before their columns stand those of decided tokens. A mask is made as
64-bit words, an eighth of a byte a column, and unpacked where another form is wanted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast import laying, laying_host
from oracle.fast.tree import visible_words
from oracle.fast.trees import checked, on_host, per_tree, whole
from oracle.words import MASK_FORMS

_WORDS = {"packed8": torch.uint8, "packed16": torch.uint16, "packed32": torch.uint32}
_ADDED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_LARGEST = torch.iinfo(torch.int64).max


def tree_mask(
    parent: Tensor,
    prefix: int | Tensor = 0,
    form: str = "allowed",
    *,
    length: Tensor | None = None,
    longest: int | None = None,
    dtype: torch.dtype = torch.float32,
    validate: bool | None = None,
    vectorised: bool | None = None,
) -> Tensor:
    """The masks of B trees, root row and column first: [B, N+1, prefix + N + 1] in their form (TREE 50x).

    parent: int64 [B, N], parent[i] < i, −1 = the root. prefix: columns of decided tokens, of every tree or int64 [B];
    then there are as many columns as the greatest needs, which is `longest` where the host does not look, and behind
    its own a tree sees nothing. length: how many rows of each tree count, int64 [B]; None = all; the others see
    nothing. form: "allowed": true = visible. "blocked": true = hidden. "additive": `dtype`, 0 = visible, −inf = hidden.
    "packed8", "packed16", "packed32": unsigned words [B, N+1, ceil(columns / width)], bit i of word w = column
    w·width + i is visible. Raises `BadInput`.
    """
    if not isinstance(form, str) or form not in MASK_FORMS:
        raise BadInput("form", (), f"is one of {', '.join(MASK_FORMS)}", form)
    if form == "additive" and dtype not in _ADDED:
        raise BadInput("dtype", (), f"is one of {', '.join(map(str, _ADDED))}", dtype)
    inside = visible_words(parent, length=length, validate=validate, vectorised=vectorised)
    batch, rows = parent.shape
    look = checked(validate, parent)
    per_tree(prefix, "prefix", batch, parent, 0, look)
    columns = _longest(prefix, longest, vectorised, look) + rows + 1
    words = _shifted(inside, prefix, columns)
    if length is not None:
        counts = torch.arange(rows + 1, device=parent.device) <= length.unsqueeze(1)
        words = torch.where(counts.unsqueeze(2), words, 0)
    if form in _WORDS:
        width = int(form.removeprefix("packed"))
        return words.view(torch.uint8)[..., : -(-columns // width) * width // 8].contiguous().view(_WORDS[form])
    visible = laying.unpacked(words, columns) if not on_host(words, vectorised) else _unpacked(words, columns)
    if form == "additive":
        hidden = torch.full((), -torch.inf, dtype=dtype, device=parent.device)
        return torch.where(visible, torch.zeros((), dtype=dtype, device=parent.device), hidden)
    return visible if form == "allowed" else ~visible


def _longest(prefix: int | Tensor, longest: int | None, vectorised: bool | None, look: bool) -> int:
    if not isinstance(prefix, Tensor):
        return prefix if longest is None else whole(longest, "longest", prefix)
    if longest is None and not on_host(prefix, vectorised):
        raise BadInput("longest", (), "is told where prefixes are not looked at")
    greatest = int(prefix.max()) if prefix.numel() and (look or longest is None) else 0
    return greatest if longest is None else whole(longest, "longest", greatest)


def _shifted(inside: Tensor, prefix: int | Tensor, columns: int) -> Tensor:
    """Bits [B, R, words] behind as many ones as there are decided tokens, and the root's."""
    batch, rows, words = inside.shape
    start = (prefix if isinstance(prefix, Tensor) else torch.full((batch,), prefix, device=inside.device)) + 1
    start = start.view(batch, 1, 1)
    first, odd = start >> 6, start & 63
    wanted = -(-columns // 64)
    own = torch.arange(wanted + words + 1, device=inside.device)  # what is moved may end in words behind the columns
    found = torch.where(own < first, -1, 0).expand(-1, rows, -1).clone()
    carried = ((inside >> 1) & _LARGEST) >> (63 - odd)  # the sign is a bit like others
    moved = torch.nn.functional.pad(inside << odd, (0, 1)) | torch.nn.functional.pad(carried, (1, 0))
    moved[:, :, :1] |= (torch.ones_like(odd) << odd) - 1
    found.scatter_(2, (first + own[: words + 1]).expand(-1, rows, -1), moved)
    return found[:, :, :wanted]


def _unpacked(words: Tensor, columns: int) -> Tensor:
    return torch.from_numpy(laying_host.unpacked(words.numpy(), columns))
