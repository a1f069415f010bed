"""What the Makefile calls; the standard library alone, since it runs before anything is installed."""
