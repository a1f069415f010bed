"""Measurements of the suite itself."""
