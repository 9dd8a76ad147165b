"""The training loop: one for every task and every distribution strategy."""
