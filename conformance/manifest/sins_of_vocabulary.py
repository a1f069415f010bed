"""Faults of sizes, draft maps, heads and tokenizers; they join those of `sins`."""

from __future__ import annotations

import numpy as np

from conformance.manifest.filing import numbers, tensor
from conformance.manifest.releases import Parts, write_map
from conformance.manifest.sins import MARKED, REDUCED, exchanged, sin


@sin("401", known=True)
def target_with_more_tokens(parts: Parts) -> None:
    """Tokens were added to the target after the drafter was made."""
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        held = parts.target[name]
        rows = numbers(held).reshape(held.shape)
        parts.target[name] = tensor(np.concatenate([rows, rows[:4][::-1]]), held.dtype)
    size = parts.target_config["vocab_size"]
    parts.target_config["vocab_size"] = size + 4
    parts.tokens |= {size + i: f"<new{i}>" for i in range(4)}


@sin("401")
def another_vocabulary_told(parts: Parts) -> None:
    parts.manifest["target"]["vocabulary_size"] -= 1


@sin("402", REDUCED)
def map_of_another_head(parts: Parts) -> None:
    parts.manifest["map"]["size"] += 1


@sin("402", REDUCED, known=True)
def map_too_short(parts: Parts) -> None:
    parts.ids = (parts.ids or [])[:-1]
    write_map(parts)


@sin("403", REDUCED, known=True)
def map_beyond_the_vocabulary(parts: Parts) -> None:
    parts.ids = [*(parts.ids or [])[:-1], parts.settings["vocab_size"]]
    write_map(parts)


@sin("403", REDUCED, known=True)
def two_ids_of_one_token(parts: Parts) -> None:
    ids = parts.ids or []
    parts.ids = [*ids[:-1], ids[-2]]
    write_map(parts)


@sin("404", MARKED, known=True)
def map_not_rising(parts: Parts) -> None:
    """The last two draft ids are exchanged; `t2d` marks the same tokens."""
    ids = parts.ids or []
    parts.ids = [*ids[:-2], ids[-1], ids[-2]]
    write_map(parts)


@sin("405", MARKED, known=True)
def another_token_marked(parts: Parts) -> None:
    marked = numbers(parts.drafter["t2d"])
    marked[[(parts.ids or [])[-1], 0]] = False, True
    parts.drafter["t2d"] = tensor(marked, "BOOL")


@sin("405", MARKED, known=True)
def one_token_more_marked(parts: Parts) -> None:
    marked = numbers(parts.drafter["t2d"])
    marked[-1] = True
    parts.drafter["t2d"] = tensor(marked, "BOOL")


@sin("406", REDUCED, known=True)
def absolute_ids_in_the_file(parts: Parts) -> None:
    """The file holds ids where its readers expect offsets (SafeAILab/EAGLE#222)."""
    write_map(parts, "absolute")


@sin("406", REDUCED)
def offsets_told_absolute(parts: Parts) -> None:
    parts.manifest["map"]["convention"] = "absolute"


@sin("407", REDUCED)
def no_head(parts: Parts) -> None:
    """sgl-project/sglang#27908: the head is not in the file."""
    del parts.drafter["lm_head.weight"]


@sin("407", REDUCED, known=True)
def head_left_to_the_target(parts: Parts) -> None:
    del parts.drafter["lm_head.weight"]


@sin("408", REDUCED)
def no_map(parts: Parts) -> None:
    """NVIDIA-NeMo/Automodel#2447: the map is not in the file."""
    for name in ("d2t", "t2d"):
        parts.drafter.pop(name, None)


@sin("409", ("vllm",))
def head_that_is_not_there(parts: Parts) -> None:
    parts.manifest["head"] = {"identity": "own"}


@sin("409", ("eagle3", "modelopt", "vllm", "serving"))
def embedding_that_is_not_there(parts: Parts) -> None:
    parts.manifest["embedding"] = {"identity": "own"}


@sin("409", ("eagle", "specforge", "speculators"))
def embedding_that_should_be_shared(parts: Parts) -> None:
    parts.manifest["embedding"] = {"identity": "target"}


@sin("409", REDUCED)
def head_that_should_be_shared(parts: Parts) -> None:
    parts.manifest["head"] = {"identity": "target"}


@sin("410")
def own_tokenizer_permuted(parts: Parts) -> None:
    parts.own_tokens = exchanged(parts.tokens, 5, 11)


@sin("410", ("eagle", "specforge", "modelopt"), says=False)
def own_tokenizer_shifted(parts: Parts) -> None:
    """One token more at the beginning."""
    parts.own_tokens = {0: "<more>"} | {i + 1: token for i, token in parts.tokens.items()}
