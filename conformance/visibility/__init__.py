"""Visibility: which nodes a rollout has, where they stand and who sees whom, as a graph, a mask and an attention."""
