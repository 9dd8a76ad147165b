"""What each script does, as a story; the scripts bind flags and call `run(config)`."""
