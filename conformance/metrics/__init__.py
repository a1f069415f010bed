"""Metrics of speculative rounds: counts, ratios, acceptance by depth."""
