"""Settings of models and text, and the files that hold them, such as `bert_config.json`."""
