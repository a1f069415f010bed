"""The golden vectors of manifests: whole releases of a few kilobytes, as files, each wrong in a way or two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.manifest.asking import OPERATION
from conformance.manifest.cases import HOSTILE
from conformance.manifest.files import ReleaseFiles, laid, taken
from conformance.manifest.releases import MAKERS, Parts, document, write, write_manifest
from conformance.manifest.sins import SINS, Sin
from conformance.manifest.small import Small
from conformance.verdicts import HarnessError
from oracle.errors import BadInput
from oracle.manifest.release import check_release
from oracle.types import ReleaseCase

_GITHUB = "https://github.com/"
FLAGS: Mapping[str, Flag] = {
    "declared layers": Flag(
        "fault",
        "One list of layers means those that are entered to one reader, and those that are left to another.",
        (f"{_GITHUB}sgl-project/sglang/issues/25454", f"{_GITHUB}SafeAILab/EAGLE/issues/239"),
    ),
    "draft map": Flag(
        "fault",
        "A draft token is taken for another one: the map is of other data, of another form or not there.",
        (f"{_GITHUB}SafeAILab/EAGLE/issues/222", f"{_GITHUB}sgl-project/SpecForge/issues/602"),
    ),
    "head left out": Flag(
        "fault",
        "A head of fewer tokens than the target's is not in the file, and stays at random.",
        (f"{_GITHUB}sgl-project/sglang/issues/27908",),
    ),
    "variant": Flag(
        "fault", "Weights of one variant are run as another.", (f"{_GITHUB}sgl-project/sglang/issues/21272",)
    ),
    "context": Flag(
        "fault",
        "The drafter has fewer positions than the target.",
        (f"{_GITHUB}vllm-project/vllm/issues/48894",),
    ),
    "serving dtype": Flag(
        "fault",
        "Numbers that were finite in training are infinite where they are served.",
        (f"{_GITHUB}vllm-project/vllm/issues/55250",),
    ),
    "tokenizer": Flag(
        "fault", "Ids mean other tokens than in training.", (f"{_GITHUB}ggml-org/llama.cpp/issues/3812",)
    ),
    "rotary": Flag(
        "fault", "Positions turn otherwise than in training.", (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/19036",)
    ),
}
HARMLESS_PICKLE = b"\x80\x02}q\x00."
"""An empty dict: who loads it is wrong, and nothing happens."""


def release(layout: str, *sins: str | Sin, damage: str = "") -> ReleaseFiles:
    """A release in a layout, with these faults, and then damaged."""
    parts = MAKERS[layout](Small())
    chosen = [SINS[one] if isinstance(one, str) else one for one in sins]
    parts.says = all(one.says for one in chosen)
    with TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        for one in chosen:
            if one.known or not parts.says:
                one.change(parts)
        drafter, target = write(parts, folder)
        if parts.says:
            parts.manifest = document(parts, drafter, target)
            for one in chosen:
                if not one.known:
                    one.change(parts)
            write(parts, folder)
        case = ReleaseCase(write_manifest(parts, folder), drafter, target)
        if damage:
            case = HOSTILE[damage].damage(case) or case
        for path in (*folder.rglob("*.bin"), *folder.rglob("*.pt")):
            path.write_bytes(HARMLESS_PICKLE)
        return taken(case, folder)


def _wider(parts: Parts) -> None:
    """The target is twice as wide, and the manifest was made with it."""
    maker = Small()
    maker.hidden *= 2
    parts.target, parts.target_config = maker.target(parts.dtype)


WIDER = Sin("MANIFEST-304", _wider, known=True)
Values = Mapping[str, tuple[str, str]]
NOTHING: Values = {}
RELATED: dict[Golden, tuple[tuple[str, ...], Values]] = {}
"""Case → the clauses that its faults break, and the two values that a message about one has."""
REFUSED: dict[Golden, str] = {}
"""Refused case → the field that is wrong with it."""


def related(
    description: str,
    layout: str,
    *sins: str | Sin,
    good: tuple[int, ...] = (),
    flag: str = "",
    values: Values = NOTHING,
) -> Golden:
    """A release whose faults break their clauses; of a `good` one these clauses say that it breaks none."""
    broken = tuple(sorted({one.clause for name in sins if (one := _sin(name)).clause}))
    touched = broken or tuple(f"MANIFEST-{clause}" for clause in good)
    more = tuple(f"MANIFEST-{clause}" for clause in good) if broken else ()
    arguments = {"case": release(layout, *sins)}
    case = Golden(OPERATION, (*more, *touched), description, arguments, (flag,) if flag else ())
    RELATED[case] = broken, values
    return case


def refused(field: str, description: str, damage: str, *sins: str) -> Golden:
    """A release that is damaged, with a manifest or, by its faults, without."""
    arguments = {"case": release("eagle", *sins, damage=damage)}
    case = Golden(OPERATION, (HOSTILE[damage].clause,), description, arguments, ("hostile",))
    REFUSED[case] = field
    return case


def _sin(one: str | Sin) -> Sin:
    return SINS[one] if isinstance(one, str) else one


_BARE = ("no_manifest", "two_shards")
WEIGHTS = "model.safetensors"

GOLDEN: tuple[Golden, ...] = (
    related("EAGLE-1 as it is published: nothing is wrong", "eagle", "nothing", good=(101, 103)),
    related(
        "A head over the whole vocabulary without a manifest: nothing is wrong", "vllm", "no_manifest", good=(101,)
    ),
    related(
        "The same release in other files: shards, order, spelling and two files of tokens",
        "eagle3",
        "written_backwards",
        "another_version",
        "tokenizer_in_two_files",
        "the_targets_tokenizer",
        good=(202,),
    ),
    related(
        "Weights, configuration, head and features are of other revisions",
        "specforge",
        "dtype_relabelled",
        "other_epsilon",
        "head_of_another_run",
        "features_of_another_revision",
    ),
    related(
        "A byte of the target, two of its tokens and the draft map changed",
        "serving",
        "last_byte_flipped",
        "target_tokenizer_permuted",
        "stale_map",
        flag="tokenizer",
    ),
    related("A norm is missing, and another one is not told", "eagle3", "norm_that_is_not_told", "without_norm"),
    related("A layer too many, and a row of the head too few", "modelopt", "second_layer", "head_of_fewer_rows"),
    related("The target is twice as wide as the drafter", "eagle", WIDER),
    related(
        "EAGLE-3 weights are run as EAGLE-1",
        "specforge",
        "run_as_eagle1",
        flag="variant",
        good=(102,),
        values={"MANIFEST-305": ("eagle1", "eagle3")},
    ),
    related(
        "A configuration alone: EAGLE-1 by name, a position short, and a weight beyond float16",
        "specforge",
        "architecture_of_eagle1",
        "own_context_one_short",
        "own_weight_beyond_float16",
        flag="variant",
    ),
    related(
        "Tokens were added to the target, the rotary base is off by one, and weights were cast",
        "eagle",
        "target_with_more_tokens",
        "other_theta",
        "cast_after_training",
        good=(102,),
        values={"MANIFEST-401": ("19", "23"), "MANIFEST-704": ("float32", "float16")},
    ),
    related(
        "A map is too short, and no layers are told", "eagle3", "map_too_short", "layers_not_told", flag="draft map"
    ),
    related(
        "A map leads beyond the vocabulary, and pairs are laid out otherwise",
        "specforge",
        "map_beyond_the_vocabulary",
        "pairs_interleaved",
        flag="rotary",
    ),
    related(
        "Two draft ids are one token, and engines read the layers one apart",
        "serving",
        "two_ids_of_one_token",
        "layers_entered_or_left",
        flag="declared layers",
    ),
    related(
        "A map does not rise, and a layer lies beyond the target",
        "eagle3",
        "map_not_rising",
        "layer_beyond_the_target",
        flag="draft map",
    ),
    related(
        "Another token is marked, and layers are told one further",
        "specforge",
        "another_token_marked",
        "layers_one_further",
        flag="declared layers",
    ),
    related(
        "One token more is marked, and a norm of features is told that is not there",
        "speculators",
        "one_token_more_marked",
        "norm_of_features_not_told",
    ),
    related(
        "Offsets are told to be absolute, and features to be from behind the norm",
        "modelopt",
        "offsets_told_absolute",
        "feature_of_the_other_side_of_the_norm",
        flag="draft map",
    ),
    related(
        "The file holds absolute ids where offsets are read", "eagle3", "absolute_ids_in_the_file", flag="draft map"
    ),
    related("A reduced vocabulary has no head and no map", "modelopt", "no_head", "no_map", flag="head left out"),
    related(
        "An embedding is told that is not there, and layers in another order",
        "vllm",
        "embedding_that_is_not_there",
        "layers_in_another_order",
        flag="declared layers",
    ),
    related(
        "A head of its own is told to be the target's, and a weight is beyond float16",
        "specforge",
        "head_that_should_be_shared",
        "weight_beyond_float16",
        flag="serving dtype",
    ),
    related(
        "The drafter's tokenizer is permuted, and a weight infinite",
        "eagle",
        "own_tokenizer_permuted",
        "infinite_weight",
        flag="tokenizer",
    ),
    related(
        "The embedding is told as a layer, and a position is missing",
        "speculators",
        "the_embedding_as_a_layer",
        "own_context_one_short",
        flag="declared layers",
    ),
    related(
        "A layer is told twice, and a position too few",
        "eagle3",
        "layer_twice",
        "shorter_context_told",
        flag="context",
        good=(102,),
        values={"MANIFEST-601": ("95", "96")},
    ),
    related("Four layers are told for three features", "modelopt", "four_layers_for_three", flag="declared layers"),
    related(
        "Another state is fed back, and the embedding is of another run",
        "speculators",
        "other_state_fed_back",
        "embedding_of_another_run",
    ),
    related(
        "A norm holds NaN, and the target is told to be wider and to have fewer tokens",
        "specforge",
        "nan_norm",
        "another_width_told",
        "another_vocabulary_told",
        good=(102,),
        values={"MANIFEST-304": ("12", "4"), "MANIFEST-401": ("18", "19")},
    ),
    related(
        "Each weight of the head fits float16, and its logits do not",
        "serving",
        "logits_beyond_float16",
        flag="serving dtype",
    ),
    related("Logits of the head that is borrowed overflow", "vllm", "logits_of_the_targets_head", flag="serving dtype"),
    related("The final norm lifts logits beyond float16", "eagle3", "norm_that_lifts_logits", flag="serving dtype"),
    refused("manifest.toml: colour", "A key that nobody knows is refused", "unknown_key"),
    refused("manifest.toml: features.layer", "An unknown key of a section is refused", "unknown_key_of_a_section"),
    refused("manifest.toml: format", "A document of another format is refused", "another_format"),
    refused("manifest.toml: target.vocabulary_size", "A number in quotes is refused", "number_as_text"),
    refused("manifest.toml: target.hidden_size", "A fraction where a size is wanted is refused", "fraction_of_a_token"),
    refused(
        f"{WEIGHTS}: layers.0.post_attention_layernorm.weight.data_offsets",
        "Weights whose last byte is missing are refused",
        "data_cut",
        *_BARE,
    ),
    refused(WEIGHTS, "Two tensors that share their bytes are refused", "ranges_overlap", *_BARE),
    refused(WEIGHTS, "Bytes that belong to no tensor are refused", "bytes_of_nobody", *_BARE),
    refused(f"{WEIGHTS}: fc.weight.data_offsets", "A shape of other bytes is refused", "shape_of_other_bytes", *_BARE),
    refused(WEIGHTS, "A header that is no object is refused", "header_as_a_list", *_BARE),
    refused(WEIGHTS, "A header of exabytes is refused", "header_of_exabytes", *_BARE),
    refused(WEIGHTS, "A name that stands twice in a header is refused", "name_twice", *_BARE),
    refused(WEIGHTS, "A tensor that stands in two files is refused", "name_in_two_files", *_BARE),
    refused(WEIGHTS, "One tensor under two names is refused", "one_tensor_under_two_names", *_BARE),
    refused("model.safetensors.index.json", "An index that names a pickled file is refused", "pickled_shard", *_BARE),
    refused(WEIGHTS, "Weights behind a link that leads out of the folder are refused", "linked_weights", *_BARE),
    refused(
        "../model-00001-of-00002.safetensors",
        "An index that leads out of the folder is refused",
        "shard_above_the_folder",
        *_BARE,
    ),
    refused("nothing.toml", "A manifest that is not there is refused", "no_document", *_BARE),
    refused("config.json: vocab_size", "A size in quotes is refused", "size_as_text", *_BARE),
)

UNTOUCHED: Mapping[str, str] = {}
UNSHOWN: Mapping[str, str] = {
    "LoadsPickles": "it refuses as it should; what a pickled file does when it is loaded no answer shows",
}


def answer(golden: Golden) -> Answer:
    """By the oracle, and by the hand that put the faults in."""
    with TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        case = laid(golden.arguments["case"], folder)
        if golden in REFUSED:
            return _refusal(case, folder, REFUSED[golden])
        found = check_release(case)
    clauses, values = RELATED[golden]
    if {one.clause for one in found} != set(clauses):
        raise HarnessError(f"it is made to break {clauses}; the oracle finds {found}")
    relation: dict[str, Any] = {
        "relation": "violates",
        "clauses": list(clauses),
        "fields": [[one.clause, one.field] for one in found],
        "values": [[clause, list(pair)] for clause, pair in values.items()],
    }
    return Answer(relation, ("oracle", "construction"), "relation")


def _refusal(case: ReleaseCase, folder: Path, field: str) -> Answer:
    try:
        check_release(case)
    except BadInput as error:
        named = error.field.removeprefix(f"{folder}/")
        if named == field:
            return Answer(field, ("oracle", "construction"), "refusal")
        raise HarnessError(f"the oracle refuses {named}, and not {field}") from None
    raise HarnessError(f"the oracle does not refuse the release for its field {field}")
