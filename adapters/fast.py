"""The fast paths in torch (`oracle.fast`), on NumPy cases: what crosses the interface becomes tensors and back.

Nothing is converted but that, and nothing is repaired. torch is imported when an operation is first asked for.
"""

from __future__ import annotations

from adapters.interface import Declaration

DECLARATION = Declaration(name="fast", version="0.1.0")
