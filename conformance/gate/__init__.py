"""The release gate: whether a drafter, a target and the engine that will serve them belong together."""
