"""What a run found, as data and as text."""
