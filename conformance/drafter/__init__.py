"""The drafter's numeric step: fusion, norms, attention, feed-forward, head, and the state that is fed back."""
