"""Other packages' own code, called in their own environments: `bench/peers/PACKAGE.py` holds a function a race.

A function takes the inputs, arrays by name, prepares what the package wants and returns the call that is timed; the
call returns arrays by name, which are compared. A module names its distribution in `PACKAGE`.
"""
