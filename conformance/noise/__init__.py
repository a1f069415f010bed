"""Noise on the features that a drafter is trained on."""
