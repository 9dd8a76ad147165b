"""Calls an export in a process with only TensorFlow: JSON requests on standard input, JSON responses on output.

  python -I ask_export.py EXPORT < requests.json

A request is [signature, {input: values}]; a value {"b64": ...} represents bytes, as in TensorFlow Serving's REST API.
"""

import base64
import json
import sys

if __name__ == "__main__":  # TensorFlow imports these if installed, which takes two seconds
    sys.modules.update(dict.fromkeys(("jax", "pandas", "sklearn")))
import tensorflow as tf


def decoded(value):
    if isinstance(value, list):
        return [decoded(part) for part in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def plain(values):
    return (
        [plain(value) for value in values] if isinstance(values, list) else getattr(values, "decode", lambda: values)()
    )


def answers_of(export, requests):
    loaded, answers = tf.saved_model.load(export), []
    for signature, inputs in requests:
        function = loaded.signatures[signature]
        specifications = function.structured_input_signature[1]
        tensors = {name: tf.constant(decoded(values), specifications[name].dtype) for name, values in inputs.items()}
        answers.append({name: plain(values.numpy().tolist()) for name, values in function(**tensors).items()})
    return answers


if __name__ == "__main__":
    answers = answers_of(sys.argv[1], json.load(sys.stdin))
    foreign = [name for name in sys.modules if name.startswith(("official_bert", "tensorflow_text"))]
    json.dump({"answers": answers, "foreign": foreign}, sys.stdout)
