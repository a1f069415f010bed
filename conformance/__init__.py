"""The conformance suite: `pytest conformance --impl=…`."""

__version__ = "0.1.0"
