"""Pages and images that show what a model does."""
