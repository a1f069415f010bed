"""A tokenizer's ids and their tokens, from the files that checkpoints carry; nothing is tokenized here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracle.errors import BadInput
from oracle.manifest.checkpoint import inside, read_bounded, read_json

LIMIT_LINES_BYTES = 16 * 2**20


def read_tokenizer(folder: Path) -> dict[int, str] | None:
    """Id → token, added ones with the others; None where the folder has no tokenizer that says so in plain text.

    From `tokenizer.json`, or `vocab.json` and `added_tokens.json`, or `vocab.txt`. A `tokenizer.model` is not read.
    Raises `BadInput` where two tokens have one id.
    """
    if (folder / "tokenizer.json").exists():
        document = read_json(folder, "tokenizer.json")
        model = document.get("model") if isinstance(document, dict) else None
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        found = _vocabulary(vocabulary, "tokenizer.json: model.vocab")
        for i, added in enumerate(document.get("added_tokens") or []):
            if not isinstance(added, dict) or "id" not in added or "content" not in added:
                raise BadInput("tokenizer.json: added_tokens", (i,), "has an id and a content", added)
            _put(found, added["id"], added["content"], f"tokenizer.json: added_tokens[{i}]", may_replace=True)
        return found
    if (folder / "vocab.json").exists():
        found = _vocabulary(read_json(folder, "vocab.json"), "vocab.json")
        if (folder / "added_tokens.json").exists():
            for identity, token in _vocabulary(read_json(folder, "added_tokens.json"), "added_tokens.json").items():
                _put(found, identity, token, "added_tokens.json")
        return found
    if (folder / "vocab.txt").exists():
        content = read_bounded(inside(folder, "vocab.txt"), LIMIT_LINES_BYTES)
        lines = content.decode("utf-8", "replace").split("\n")
        return dict(enumerate(lines[:-1] if lines[-1] == "" else lines))
    return None


def _vocabulary(vocabulary: Any, where: str) -> dict[int, str]:
    """A table token → id, or a list of tokens or of [token, score]."""
    found: dict[int, str] = {}
    if isinstance(vocabulary, dict):
        for token, identity in vocabulary.items():
            _put(found, identity, token, where)
    elif isinstance(vocabulary, list):
        for identity, entry in enumerate(vocabulary):
            _put(found, identity, entry[0] if isinstance(entry, list) and entry else entry, where)
    else:
        raise BadInput(where, (), "is a table of tokens, or a list", type(vocabulary).__name__)
    return found


def _put(found: dict[int, str], identity: Any, token: Any, where: str, may_replace: bool = False) -> None:
    if isinstance(identity, bool) or not isinstance(identity, int) or not 0 <= identity < 2**31:
        raise BadInput(where, (), f"the id of {token!r} is a whole number", identity)
    if not isinstance(token, str):
        raise BadInput(where, (identity,), "a token is a text", type(token).__name__)
    if not may_replace and found.get(identity, token) != token:
        raise BadInput(where, (identity,), f"one id has one token; {found[identity]!r} has it, too", token)
    found[identity] = token
