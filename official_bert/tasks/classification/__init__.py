"""Classification and regression of single texts and text pairs."""
