"""Warm-up requests: their sizes, those that damage or an older version left behind, and when servers compute them."""

import os

import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.record_files import frame
from official_bert.data.schema import fields
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.sentence import SentenceModel
from official_bert.options.groups import BatchingSettings
from official_bert.serving import saved_model
from official_bert.serving.saved_model import WARMUP_FILE, read_warmup, warmup_requests
from official_bert.serving.served_model import ServedModel
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from official_bert.tokenization import FullTokenizer
from tests.serving.server_process import wait_until
from tests.serving.tiny_exports import PROMPTS

pytestmark = pytest.mark.usefixtures("unoptimized_graphs")
SETTINGS = BatchingSettings(num_batch_threads=2)


@pytest.mark.parametrize("record", [b"", b"\x08\x01", b"\x32\x05ab", b"\x32\x80", b"\x32\x02\x0a\x00"])
def test_other_records_are_refused(record, tmp_path):
    (tmp_path / "requests").write_bytes(frame(record))
    with pytest.raises(UserError, match="does not hold warm-up requests"):
        list(read_warmup(str(tmp_path / "requests")))


def test_fields_that_are_cut_off_are_refused():
    assert list(fields(b"\x0a\x01a\x12\x00")) == [(b"\x0a", b"a"), (b"\x12", b"")]
    for message in (b"\x0a", b"\x0a\x80", b"\x0a\x02a", b"\x08\x01", b"\x82\x01\x00"):
        with pytest.raises(ValueError):
            list(fields(message))


@pytest.mark.endurance
def test_limits_and_warm_up_requests_follow_from_the_sizes_of_the_model(vocab_file):
    """The vectors of one text of 4,096 positions are twice the general limit, and 8 such texts are much work."""
    tokenizer = FullTokenizer(vocab_file)
    config = BertConfig(
        vocab_size=tokenizer.vocabulary.size, hidden_size=1024, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=4096,
    )  # fmt: skip
    servable = SentenceServable(SentenceModel(BertEncoder(config)), config, tokenizer, max_seq_length=4096)
    signatures, asked = servable.signatures(), set()
    for name, inputs in warmup_requests(servable):
        asked.add(name)
        assert tf.size(inputs.get("input_ids", [])) <= 1024
    assert asked == set(signatures)
    ids = {name: tf.ones([2, 4096], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    one = signatures["token_vectors"](**{name: values[:1] for name, values in ids.items()})
    assert one["token_vectors"].shape == [1, 4096, 1024]
    with pytest.raises(tf.errors.InvalidArgumentError, match="limited to 4194304 cells .* would be. .8388608"):
        signatures["token_vectors"](**ids)


@pytest.mark.endurance
def test_signatures_that_are_asked_first_are_warm_at_the_start_and_the_others_soon(export_dir, monkeypatch):
    computed, signature_of = [], saved_model.signature_of

    def counted(name, function):
        def compute(inputs):
            computed.append((name, len(next(iter(inputs.values())))))
            return signature.compute(inputs)

        signature = signature_of(name, function)
        return signature._replace(compute=compute)

    monkeypatch.setattr(saved_model, "signature_of", counted)
    served = ServedModel(export_dir, SETTINGS, poll_seconds=0.01)
    assert sorted(computed) == [("serving_default", 1), ("text", 1), ("tokenize", 1)]
    served.start_watching()
    wait_until(lambda: len(computed) == len(served.version.signatures))
    served.close()
    assert sorted(computed) == sorted((name, 1) for name in served.version.signatures)


@pytest.mark.slow
def test_a_failing_request_is_one_line(write_export, tmp_path, caplog):
    path = os.path.join(write_export(tmp_path / "encoder", "sentence_encoder", prompts=PROMPTS), *WARMUP_FILE)
    records = list(tf.data.TFRecordDataset([path]).as_numpy_iterator())
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            if b"serving_default" in record or b"tokenize" in record:  # others take longer
                writer.write(record.replace(b"serving_default", b"serving_unknown"))
    served = ServedModel(str(tmp_path / "encoder"), SETTINGS, poll_seconds=0.01)
    for _ in served.version.signatures:
        served.version.warm_up_next()
    served.close()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1 and "encoder/1: the warm-up request to serving_unknown failed" in lines[0], lines
