"""Whether a drafter, its manifest and a target belong together: every rule that a release breaks, by clause."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.manifest import addresses, identity, structure, values, vocabulary
from oracle.manifest.fingerprint import Progress
from oracle.manifest.opened import Rule, open_release
from oracle.types import ReleaseCase, Violation

RULES: Mapping[str, Rule] = {
    "MANIFEST-201": identity.target_weights,
    "MANIFEST-203": identity.target_config,
    "MANIFEST-204": identity.target_tokenizer,
    "MANIFEST-205": identity.parts,
    "MANIFEST-206": identity.draft_map,
    "MANIFEST-207": identity.features,
    "MANIFEST-301": structure.missing,
    "MANIFEST-302": structure.unexpected,
    "MANIFEST-303": structure.shapes,
    "MANIFEST-304": structure.hidden_sizes,
    "MANIFEST-305": structure.variant,
    "MANIFEST-401": vocabulary.sizes,
    "MANIFEST-402": vocabulary.draft_sizes,
    "MANIFEST-403": vocabulary.map_range,
    "MANIFEST-404": vocabulary.map_order,
    "MANIFEST-405": vocabulary.marks,
    "MANIFEST-406": vocabulary.convention,
    "MANIFEST-407": vocabulary.reduced_head,
    "MANIFEST-408": vocabulary.reduced_map,
    "MANIFEST-409": vocabulary.identities,
    "MANIFEST-410": vocabulary.tokenizers,
    "MANIFEST-501": addresses.named,
    "MANIFEST-502": addresses.in_range,
    "MANIFEST-503": addresses.distinct,
    "MANIFEST-504": addresses.agreed,
    "MANIFEST-505": addresses.as_many,
    "MANIFEST-506": addresses.feature_norm,
    "MANIFEST-601": addresses.context,
    "MANIFEST-602": addresses.rotary,
    "MANIFEST-701": values.finite,
    "MANIFEST-702": values.weights_fit,
    "MANIFEST-703": values.logits_fit,
    "MANIFEST-704": values.stored_dtype,
}
"""Clause → the rule that finds what breaks it, in the order in which they are told."""


def check_release(case: ReleaseCase, progress: Progress | None = None) -> list[Violation]:
    """Every violation of the release, in the order of the clauses; none where its parts belong together.

    A rule is judged where the release says enough: what manifest and layout leave unsaid breaks nothing, except layer
    addresses. `progress` is told of the bytes that are read for fingerprints. Raises `BadInput` where a document or a
    checkpoint cannot be read. Source: MANIFEST 2xx–7xx.
    """
    release = open_release(case, progress)
    return [Violation(clause, field, message) for clause, rule in RULES.items() for field, message in rule(release)]
