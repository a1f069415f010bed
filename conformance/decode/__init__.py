"""A whole engine's output, with speculation and without."""
