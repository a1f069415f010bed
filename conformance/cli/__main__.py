"""`python -m conformance.cli`, where the tool is not installed."""

from __future__ import annotations

import sys

from conformance.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
