"""Manifest: whether a drafter, what is said of it, and a target belong together."""
