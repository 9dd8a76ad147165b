"""What a run is told: flags, their frozen dataclasses, and the model's `bert_config.json`."""
