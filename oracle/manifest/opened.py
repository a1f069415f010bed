"""A release, opened: manifest, drafter and target as the rules of `release` read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oracle.errors import BadInput
from oracle.manifest import fingerprint, layouts, numbers
from oracle.manifest.checkpoint import Checkpoint, read_checkpoint
from oracle.manifest.document import Manifest, merged, read_manifest
from oracle.manifest.headers import Stored
from oracle.manifest.layouts import Read, read_layout, size
from oracle.types import Ids, ReleaseCase

Found = Iterator[tuple[str, str]]
"""Field and message of each violation of a rule."""
Rule = Callable[["Release"], Found]


@dataclass(frozen=True)
class Release:
    """given: what the document says. said: that, and where it is silent, what the drafter's layout says."""

    given: Manifest
    drafter: Read
    checkpoint: Checkpoint
    target: Checkpoint
    progress: fingerprint.Progress | None = None

    @cached_property
    def said(self) -> Manifest:
        return merged(self.given, self.drafter.manifest)

    @cached_property
    def target_config(self) -> Mapping[str, Any]:
        """The settings of the target's decoder; multimodal targets keep them one level down."""
        inner = self.target.config.get("text_config")
        return inner if isinstance(inner, dict) else self.target.config

    def of_drafter(self, key: str) -> int | None:
        return size(self.drafter.config, key)

    def of_target(self, key: str) -> int | None:
        return size(self.target_config, key)

    @cached_property
    def variant(self) -> str:
        """The variant that the weights are of."""
        return layouts.variant_of(self.drafter.tensors, self.feature_width)

    @cached_property
    def feature_width(self) -> int | None:
        """The width of a layer's feature that the drafter's configuration expects."""
        return self.of_drafter("target_hidden_size") or self.of_drafter("hidden_size")

    @cached_property
    def fused_layers(self) -> int | None:
        """How many features `fc` takes side by side."""
        fuse = self.drafter.tensors.get("fc.weight")
        if self.variant == "eagle1" or fuse is None or len(fuse.shape) != 2 or not self.feature_width:
            return None
        return fuse.shape[1] // self.feature_width

    @cached_property
    def draft_size(self) -> int | None:
        """How many draft ids there are, as the configuration says; without a word, as the map or the head has."""
        held = self.drafter.tensors
        rows = [held[name].shape[0] for name in ("d2t", "lm_head.weight") if name in held and held[name].shape]
        return self.of_drafter("draft_vocab_size") or next(iter(rows), None) or self.of_drafter("vocab_size")

    @cached_property
    def reduced(self) -> bool:
        vocabulary = self.of_drafter("vocab_size")
        return vocabulary is not None and self.draft_size is not None and self.draft_size < vocabulary

    @cached_property
    def own_head(self) -> Stored | None:
        return self.drafter.tensors.get("lm_head.weight")

    @cached_property
    def own_embedding(self) -> Stored | None:
        return self.drafter.tensors.get("embed_tokens.weight")

    @cached_property
    def target_embedding(self) -> Stored | None:
        return self._of_target("embed_tokens.weight")

    @cached_property
    def target_head(self) -> Stored | None:
        """The target's head; its embedding where the two are tied."""
        return self._of_target("lm_head.weight") or self.target_embedding

    def _of_target(self, ending: str) -> Stored | None:
        found = [s for name, s in self.target.tensors.items() if name == ending or name.endswith("." + ending)]
        return found[0] if len(found) == 1 else None

    def digest(self, stored: Stored) -> str:
        return fingerprint.part_digest(stored, self.progress)

    @cached_property
    def target_weights(self) -> str:
        return fingerprint.fingerprint(self.target.tensors.values(), self.progress)

    # ---- the draft map

    @cached_property
    def draft_map(self) -> DraftMapRead | None:
        """`d2t` under both conventions; None where the drafter has none."""
        stored, vocabulary = self.drafter.tensors.get("d2t"), self.of_drafter("vocab_size")
        if stored is None or vocabulary is None:
            return None
        written = numbers.ids(stored)
        marks = self.drafter.tensors.get("t2d")
        return DraftMapRead(
            written=written,
            vocabulary=vocabulary,
            convention=self.said.map.convention or "offset",
            marked=None if marks is None else np.flatnonzero(numbers.flags(marks)),
            digest=self.given.map.digest,
        )


@dataclass(frozen=True)
class DraftMapRead:
    """written: `d2t` [Vd]. marked: the ids that `t2d` marks, rising. digest: the one that the document says."""

    written: Ids
    vocabulary: int
    convention: str
    marked: Ids | None
    digest: str | None

    def read_as(self, convention: str) -> Ids:
        return self.written + np.arange(len(self.written)) if convention == "offset" else self.written

    @cached_property
    def ids(self) -> Ids:
        """The absolute ids, under the convention that is said."""
        return self.read_as(self.convention)

    def outside(self, ids: Ids) -> Ids:
        """The draft ids that lead out of the target's vocabulary."""
        return np.flatnonzero((ids < 0) | (ids >= self.vocabulary))

    def is_map(self, ids: Ids) -> bool:
        """Whether the ids are distinct tokens of the target."""
        return not len(self.outside(ids)) and len(np.unique(ids)) == len(ids)

    @cached_property
    def fits_marks(self) -> bool:
        """Whether `t2d` marks exactly the ids that `d2t` leads to."""
        return self.is_map(self.ids) and self.marked is not None and np.array_equal(np.sort(self.ids), self.marked)

    def fits(self, ids: Ids) -> bool:
        """Whether the ids are a map, and the one that `t2d` and the document's digest tell of."""
        return (
            self.is_map(ids)
            and (self.marked is None or np.array_equal(np.sort(ids), self.marked))
            and (self.digest is None or fingerprint.map_digest(ids) == self.digest)
        )

    @cached_property
    def misread(self) -> bool:
        """Whether the other convention, and not the one that is said, fits."""
        other = "absolute" if self.convention == "offset" else "offset"
        return not self.fits(self.ids) and self.fits(self.read_as(other))


def open_release(case: ReleaseCase, progress: fingerprint.Progress | None = None) -> Release:
    """The release of a case, its headers and documents read. Raises `BadInput`."""
    if not isinstance(case, ReleaseCase):
        raise BadInput("case", (), "a case is an oracle.types.ReleaseCase", type(case).__name__)
    for name in ("manifest", "drafter", "target"):
        path = getattr(case, name)
        if not isinstance(path, Path) and not (name == "manifest" and path is None):
            raise BadInput(name, (), "is a path", type(path).__name__)
    given = Manifest() if case.manifest is None else read_manifest(case.manifest)
    checkpoint, target = read_checkpoint(case.drafter), read_checkpoint(case.target)
    return Release(given, read_layout(checkpoint), checkpoint, target, progress)
