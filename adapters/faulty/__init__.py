"""Implementations with exactly one fault each: what the suite must find, and under which clause."""
