"""Acceptance: exact accept and reject for drafted chains, and the law that comes out."""
