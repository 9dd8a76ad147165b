"""How weights move: the reference's Adam with weight decay, its schedule and its clipping."""
