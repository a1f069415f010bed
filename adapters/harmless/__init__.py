"""Implementations that differ from the reference where they may: what the suite must let pass."""
