"""The losses of drafter training: their values, their gradients and the conventions behind them."""
