"""An export of `run_squad` gives the scores of its model, which `tests/modeling/test_classifier.py` compares."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.heads import SpanModel
from official_bert.serving.servable import IDS_SCHEMA
from tests.conftest import GOLDEN, golden_arrays, run_here
from tests.exports import TOLERANCE


@pytest.mark.slow
def test_position_scores_are_those_of_the_model(one_layer_model, tmp_path, caplog):
    flags = {
        **one_layer_model, "init_checkpoint": GOLDEN / "squad" / "model.ckpt", "output_dir": tmp_path / "out",
        "export_dir": tmp_path / "serving", "max_seq_length": 64, "doc_stride": 24, "max_query_length": 16,
    }  # fmt: skip
    run_here("run_squad", **flags, do_export=True)
    assert "its best answer differs from that in predictions.json for some questions" in caplog.text
    assert "export with answer_alignment=offsets" in caplog.text
    inputs = golden_arrays("pretraining_model/activations.npz")
    inputs = {name: inputs[f"in/{name}"] for name in IDS_SCHEMA.names}
    signature = tf.saved_model.load(str(tmp_path / "serving" / "1")).signatures["serving_int64"]
    found = signature(**{name: tf.constant(values, tf.int64) for name, values in inputs.items()})
    expected = SpanModel.from_checkpoint(flags["init_checkpoint"], bert_config=flags["bert_config_file"])(inputs)
    is_token = inputs["input_mask"] == 1
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(found[name].numpy()[is_token], np.array(expected[name])[is_token], atol=TOLERANCE)
        assert (found[name].numpy()[~is_token] < -1e6).all()
