"""What every implementation with one fault declares: its own name, and what its base says of cost and precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from adapters.interface import Arithmetic, Declaration


class Declared:
    """Gives each subclass a declaration of its own; the base that provides the operations says what they cost."""

    DECLARATION: ClassVar[Declaration]
    cost: ClassVar[Mapping[str, float]] = {}
    refutes: ClassVar[str]
    """In a fault: the clause that it breaks, the lowest one that the suite refutes."""

    def __init_subclass__(
        cls,
        conventions: Mapping[str, str] | None = None,
        dtype: str = "float64",
        cost: Mapping[str, float] | None = None,
    ) -> None:
        cls.cost = cls.cost if cost is None else cost
        cls.DECLARATION = Declaration(
            cls.__name__, "1.0", conventions=conventions or {}, cost=cls.cost, arithmetic=Arithmetic(dtype)
        )
