"""The one error of the oracle: bad input, named by field, index and rule."""

from __future__ import annotations


class BadInput(ValueError):
    """An input that breaks a rule of its operation.

    `field` is the dotted path of the value (`cases[1].token`), `index` the position inside it (empty
    where the whole field is meant), `rule` the sentence that it breaks, in the present tense.
    """

    def __init__(self, field: str, index: tuple[int, ...], rule: str, found: object = None) -> None:
        self.field = field
        self.index = index
        self.rule = rule
        self.found = found
        place = field + "".join(f"[{i}]" for i in index)
        shown = "" if found is None else f" = {_shown(found)}"
        super().__init__(f"{place}{shown}: {rule}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, tuple[int, ...], str, object]]:
        return (BadInput, (self.field, self.index, self.rule, self.found))


def _shown(found: object) -> str:
    try:
        return repr(found)
    except ValueError:  # Python writes out no integer of more than 4300 digits
        return f"a huge {type(found).__name__}"
