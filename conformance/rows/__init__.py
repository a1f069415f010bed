"""Rows: which exist, which are supervised, who sees whom."""
