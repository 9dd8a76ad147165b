"""What is learnt: each task joins records, a model, losses and scores."""
