"""Export a model for LiteRT (TensorFlow Lite), for phones and small devices: ids in, predictions out."""

import tensorflow as tf

from official_bert.serving.servable import Servable
from official_bert.serving.versions import LITE_FILE, logging_errors_only, write_model_file
from official_bert.support.stderr_filter import filtered_stderr


def write_lite(export_dir: str, servable: Servable, precision: str = "float32") -> str:
    """Write the next version of a model as `model.tflite`.

    Its signature `serving_default` takes input_ids, input_mask and segment_ids, int32 [1, S] for any S up to the
    model's maximum, and returns the outputs of `Servable.numbers`; LiteRT supports neither the tokenizer nor
    string outputs.

    Args:
      export_dir: folder of the versions.
      servable: the model to convert. Its encoder must compute padding, because shapes must not depend on ids. The
        vocabulary file is included as `assets/vocab.txt` or `assets/spiece.model`.
      precision: of the weights: "float32", "float16" (half the size) or "int8" (a quarter of the size). With int8, the
        largest products are also computed in integers.

    Returns:
      The folder of the version. It gets this name only when complete and flushed to disk.

    Raises:
      UserError: the folder is not writable, or the vocabulary is a pipe, which can be read only once.
    """
    function, weights = servable.numeric_signature(1)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], weights)
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    with logging_errors_only(), filtered_stderr(lambda line: line.startswith(("I0000 ", "W0000 "))):
        model = converter.convert()
    return write_model_file(export_dir, servable, LITE_FILE, model)
