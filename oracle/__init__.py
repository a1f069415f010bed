"""The contracts of EAGLE-family speculative decoding in NumPy: slow, exact, readable first."""
