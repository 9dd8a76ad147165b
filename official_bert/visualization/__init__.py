"""HTML pages and images of attention, evaluation reports and text vectors."""
