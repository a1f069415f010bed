"""The second road to every expected value: it imports nothing of the oracle but its types."""
