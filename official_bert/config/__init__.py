"""The settings of a run: flags, their frozen dataclasses, and the model's `bert_config.json`."""
