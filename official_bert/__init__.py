"""BERT on TensorFlow 2 and Keras 3, faithful to the commands, files and numbers of the first release."""

__version__ = "0.1.0"
