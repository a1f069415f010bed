"""EAGLE-3's drafter from a clone, tiny, random and in float32, and the collator of its training script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from adapters import clone_features as shared
from adapters.clones import Clone, Namespace, Standing

CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/traineagle3/cnets.py")
MODEL, LOOP = "eagle/traineagle3/cnets.py", "eagle/traineagle3/main.py"


def drafter(
    vocabulary: int, width: int, draft_vocabulary: int, softmax: Any = None, config: Any = None
) -> tuple[Namespace, Any]:
    """The namespace of the clone's file and its `Model`, whose target answers with what it is given.

    config: that of the drafter, where it is not tiny.
    """
    torch = shared.import_torch(CLONE)
    names = shared.model_names(torch)
    if softmax is not None:
        names["nn"] = Standing(torch.nn, Softmax=softmax)

    class Target(torch.nn.Module):  # type: ignore[name-defined, misc]
        """The target model: it answers every call with `answers`."""

        answers: Any = None

        @classmethod
        def from_pretrained(cls, *_: Any, **__: Any) -> Any:
            return cls()

        def forward(self, *_: Any, **__: Any) -> Any:
            return self.answers

    names["LlamaForCausalLM"] = Target
    CLONE.source(MODEL).define(names)
    config = config or shared.tiny_config(vocabulary, width, draft_vocab_size=draft_vocabulary)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        settings = SimpleNamespace(gradient_checkpointing=False)
        return names, names["Model"](config, None, settings, load_emb=False).eval()


def collator() -> Any:
    """The data collator of the training script."""
    torch = shared.import_torch(CLONE)
    names = shared.model_names(torch)
    CLONE.source(LOOP).define(names, "DataCollatorWithPadding")
    return names["DataCollatorWithPadding"]()
