"""Implementations that do no work worth the name: each one trick, for whatever operation it fits.

They say nothing of a clause. A set of golden vectors that one of them passes is worth nothing; the operations that
a class provides are those that its trick is applicable to.
"""

from __future__ import annotations
