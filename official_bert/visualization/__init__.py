"""HTML pages and images of attention, training curves, evaluation reports and text vectors."""
