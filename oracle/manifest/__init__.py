"""A drafter release: what belongs together, by fingerprints, and readers of the layouts that people publish."""
