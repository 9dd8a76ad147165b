"""Hugging Face weights: names, layout, files, and every possible defect; ALBERT's. PyTorch is not needed."""

import dataclasses
import json
import re
import struct

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.checkpoints.safetensors import from_hf, read_folder, to_hf, write_file
from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError
from tests.checkpoints.pytorch_files import pytorch_file, random_weights

V, D, L, I, S, T = 11, 4, 2, 6, 7, 3  # noqa: E741
CONFIG = BertConfig(
    vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=2, intermediate_size=I,
    max_position_embeddings=S, type_vocab_size=T,
)  # fmt: skip
ALBERT = AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 3})


def header_of(text):
    """Return the beginning of a safetensors file: the length of the header, and the header."""
    return struct.pack("<Q", len(text)) + text.encode()


def tensor_of(dtype, shape, offsets):
    return header_of(f'{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}')


@pytest.fixture
def arrays():
    return random_weights(CONFIG, "BertForPreTraining", 2)


@pytest.fixture
def read(tmp_path):
    """Return a function that writes arrays with Hugging Face's library and reads them with ours."""

    def write_and_read(arrays):
        safetensors.numpy.save_file(arrays, str(tmp_path / "model.safetensors"))
        return read_all(str(tmp_path), CONFIG)

    return write_and_read


def read_all(folder, config):
    return {name: np.asarray(array) for name, array in read_folder(folder, config).items()}


def without(arrays, *starts):
    return {name: array for name, array in arrays.items() if not name.startswith(starts)}


def assert_equal_arrays(arrays, expected):
    assert sorted(arrays) == sorted(expected)
    for name, array in arrays.items():
        assert np.asarray(array).dtype == np.float32
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("left_out", "architecture"),
    [("cls.seq_relationship", "BertForMaskedLM"), ("cls.predictions", "BertForNextSentencePrediction")],
)
def test_a_head_of_pretraining_alone_goes_there_and_back(arrays, left_out, architecture):
    arrays = without(arrays, left_out)
    ours = from_hf(arrays, CONFIG, "folder").arrays
    state = {"global_step": np.int64(3), "bert/pooler/dense/bias/adam_m": np.zeros([D], np.float32)}  # left out
    weights = to_hf(ours | state, CONFIG, "checkpoint")
    assert weights.architecture == architecture
    assert_equal_arrays(weights.arrays, arrays)


def test_old_names_and_buffers_are_understood(arrays, read):
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in arrays.items()
    }
    assert sum(name.endswith(("gamma", "beta")) for name in old) == 2 * (2 * L + 2)
    old["bert.embeddings.position_ids"] = np.arange(S)[None]
    old["fit_denses.0.weight"] = np.zeros([3, 4], np.float32)  # of TinyBERT
    assert_equal_arrays(read(old), arrays)
    with pytest.raises(UserError, match=r"pooler\.dense\.bias occurs twice"):
        read(arrays | {"pooler.dense.bias": arrays["bert.pooler.dense.bias"]})


def test_copies_of_tied_weights_are_dropped_and_stand_in_for_the_original(arrays, read):
    words, decoder = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    bias, decoder_bias = "cls.predictions.bias", "cls.predictions.decoder.bias"
    copies = {decoder: arrays[words], decoder_bias: arrays[bias]}
    assert_equal_arrays(read(arrays | copies), arrays)
    assert_equal_arrays(read(without(arrays, words, bias) | copies), arrays)
    with pytest.raises(UserError, match=f"{decoder} differs from {words}, but they are one variable"):
        read(arrays | {decoder: arrays[words] + 1})


def test_a_missing_pooler_is_newly_initialized(arrays):
    """Models for masked words, spans and tags have no pooler in `transformers`."""
    whole = from_hf(arrays, CONFIG, "folder")
    first, second = (from_hf(without(arrays, "bert.pooler"), CONFIG, "folder") for _ in range(2))
    assert not whole.new and first.new == {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    words = from_hf(without(arrays, "bert.pooler", "cls.seq_relationship"), CONFIG, "folder")
    assert words.new == words.idle == first.new and not first.idle
    assert_equal_arrays(first.arrays, second.arrays)
    largest, of_whole = (np.abs(each.arrays["bert/pooler/dense/kernel"]).max() for each in (first, whole))
    assert 0 < largest <= 2 * CONFIG.initializer_range < of_whole
    assert (first.arrays["bert/pooler/dense/bias"] == 0).all()


class TestMisfits:
    """Arrays that do not belong to the model."""

    def test_all_misfits_are_named_at_once(self, arrays):
        for name in ("bert.encoder.layer.2.output.dense.weight", "my.bert.pooler.dense.weight"):
            message = f"folder does not fit a BERT with num_hidden_layers=2: unknown: {name};"
            with pytest.raises(UserError, match=message):
                from_hf(arrays | {name: np.zeros([D], np.float32)}, CONFIG, "folder")
        for name in ("bert.encoder.layer.1.attention.self.key.bias", "bert.pooler.dense.bias", "cls.predictions.bias"):
            with pytest.raises(UserError, match=f"folder does not fit .*: missing: {name}; is it complete"):
                from_hf(without(arrays, name), CONFIG, "folder")
        given = without(arrays, "bert.encoder.layer.0.output.dense.weight", "bert.encoder.layer.1.output.dense.weight")
        given |= {"a": np.zeros(1), "b": np.zeros(1), "bert.embeddings.LayerNorm.bias": np.zeros([D + 1])}
        message = (
            "missing: bert.encoder.layer.*.output.dense.weight (2); unknown: a, b; other shapes: "
            "bert.embeddings.LayerNorm.bias is [5] there and [4] here; is it"
        )
        with pytest.raises(UserError, match=re.escape(message)):
            from_hf(given, CONFIG, "folder")

    def test_another_shape_is_refused_with_both(self, arrays):
        for name, shape, expected in (
            ("bert.encoder.layer.0.intermediate.dense.weight", [D, I], r"\[4, 6\] there and \[6, 4\]"),
            ("cls.predictions.bias", [1, V], r"\[1, 11\] there and \[11\]"),
            ("cls.seq_relationship.weight", [3, D], r"\[3, 4\] there and \[2, 4\]"),
        ):
            with pytest.raises(UserError, match=f"other shapes: {name} is {expected} here; is it"):
                from_hf(arrays | {name: np.zeros(shape, np.float32)}, CONFIG, "folder")

    def test_heads_that_no_class_has_together_and_other_checkpoints_are_refused(self, arrays):
        head = {"classifier.weight": np.zeros([3, D], np.float32), "classifier.bias": np.zeros([2], np.float32)}
        with pytest.raises(UserError, match=r"classifier\.bias is \[2\] there and \[3\] here"):
            from_hf(without(arrays, "cls") | head, CONFIG, "folder")
        ours = from_hf(arrays, CONFIG, "folder").arrays
        head = {"output_weights": np.zeros([2, D], np.float32), "output_bias": np.zeros([2], np.float32)}
        with pytest.raises(UserError, match="ckpt has a masked-LM head and a next-sentence head and a classifier; no"):
            to_hf(ours | head, CONFIG, "ckpt")
        kernel = "bert/encoder/layer_0/intermediate/dense/kernel"
        with pytest.raises(UserError, match=rf"other shapes: {kernel} is \[6, 4\] there and \[4, 6\] here"):
            to_hf(ours | {kernel: ours[kernel].T}, CONFIG, "ckpt")
        with pytest.raises(UserError, match="unknown: bert/extra;"):
            to_hf(ours | {"bert/extra": ours[kernel]}, CONFIG, "ckpt")


class TestFiles:
    """Reading and writing of files."""

    @pytest.mark.parametrize("dtype", [np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
    def test_other_precisions_become_float32(self, arrays, read, dtype):
        other = {name: array.astype(dtype) for name, array in arrays.items()}
        assert_equal_arrays(read(other), {name: array.astype(np.float32) for name, array in other.items()})
        bias = "cls.predictions.bias"
        for changed, message in ((np.zeros([V], np.int8), "I8.*quantized"), (np.full([V], 1e300), "NaN or infinity")):
            with pytest.raises(UserError, match=rf"model\.safetensors: {bias} contains {message}"):
                read(arrays | {bias: changed})

    def test_shards_are_read_by_their_index(self, arrays, tmp_path):
        names = sorted(arrays)
        shards = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
        for file, held in shards.items():
            safetensors.numpy.save_file({name: arrays[name] for name in held}, str(tmp_path / file))
        index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        assert_equal_arrays(read_folder(str(tmp_path), CONFIG), arrays)
        safetensors.numpy.save_file(arrays, str(tmp_path / "model-00002-of-00002.safetensors"))
        with pytest.raises(UserError, match="occurs twice, also in another file or under"):
            read_folder(str(tmp_path), CONFIG)

    @pytest.mark.parametrize(
        ("weight_map", "message"),
        [
            ({}, "has no weight_map"),
            ({"a": ["b"]}, r"weight_map\['a'\] is \['b'\]; it must be text"),
            ({"a": "b.safetensors"}, r"b\.safetensors is missing .1 of 1 files listed in .*json.; download"),
            *(
                ({"a": name}, "weight_map has '.*' for a; only files in the same folder are allowed")
                for name in ("../../etc/passwd", "/etc/passwd", "..", "", "b\0c")
            ),
        ],
    )
    def test_an_index_names_files_of_its_folder(self, tmp_path, weight_map, message):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(UserError, match=message):
            read_folder(str(tmp_path), CONFIG)

    def test_a_file_of_pytorch_is_read_where_there_are_no_safetensors(self, arrays, read, tmp_path):
        with pytest.raises(UserError, match=r"has no model\.safetensors, nor a pytorch_model\.bin"):
            read_folder(str(tmp_path), CONFIG)
        path = tmp_path / "pytorch_model.bin"
        path.write_bytes(pytorch_file(arrays))
        found = read_all(str(tmp_path), CONFIG)
        path.rename(tmp_path / "pytorch_model-00001-of-00001.bin")
        index = {"weight_map": dict.fromkeys(arrays, "pytorch_model-00001-of-00001.bin")}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        sharded = read_folder(str(tmp_path), CONFIG)
        path.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
        with pytest.raises(UserError, match=r"pytorch_model\.bin asks for os\.system, which weights do not need"):
            read_folder(str(tmp_path), CONFIG)
        for name, array in read(arrays).items():  # which writes safetensors beside them
            np.testing.assert_array_equal(found[name], array)
            np.testing.assert_array_equal(sharded[name], array)

    def test_a_file_cut_off_anywhere_is_refused(self, arrays, read, tmp_path):
        read(arrays)
        path = tmp_path / "model.safetensors"
        whole = path.read_bytes()
        for length in (5, 100, -1):
            path.write_bytes(whole[:length])
            with pytest.raises(UserError, match=r"model\.safetensors is damaged, truncated or not a safetensors file"):
                read_folder(str(tmp_path), CONFIG)
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 440449768\n")
        with pytest.raises(UserError, match=r"model\.safetensors is only a Git LFS pointer; run git lfs"):
            read_folder(str(tmp_path), CONFIG)

    @pytest.mark.parametrize(
        ("header", "reason"),
        [
            (struct.pack("<Q", 2**62) + b"{}", "is damaged, .*: its header has 4,611,686,018,427,387,904 bytes"),
            (header_of(" " * 3 * 2**20), "is damaged, .*: its header has 3,145,728 bytes, the limit is 2,097,152"),
            (header_of('{"a": ' + "[" * 100_000), "is nested too deeply"),
            (header_of("[]"), "it must be an object"),
            (tensor_of("F32", "[1]", "[0]"), "is damaged"),
            (tensor_of("F32", "[1]", "[4, 8]"), "is damaged"),
            (tensor_of("F32", "[0]", "[0, 0]"), "is damaged"),
            (tensor_of("F32", "[1e9]", "[0, 4]"), r"shape\[0\] is 1000000000.0; it must be a whole"),
            (tensor_of("F33", "[1]", "[0, 4]"), "a contains F33"),
            (tensor_of("F32", "[1099511627776, 1099511627776]", "[0, 4]"), "is damaged"),
        ],
    )
    def test_a_header_that_cannot_be_right_is_refused(self, tmp_path, header, reason):
        (tmp_path / "model.safetensors").write_bytes(header + b"\0" * 4)
        with pytest.raises(UserError, match=rf"model\.safetensors.*{reason}"):
            read_folder(str(tmp_path), CONFIG)

    def test_views_are_written_as_they_look(self, tmp_path):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        write_file(str(tmp_path / "a.safetensors"), {"a": array.T, "b": array})
        assert_equal_arrays(safetensors.numpy.load_file(tmp_path / "a.safetensors"), {"a": array.T, "b": array})
        with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
            assert file.metadata() == {"format": "pt"}
        assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_projection_between_equal_widths_cannot_be_converted():
    equal = dataclasses.replace(ALBERT, embedding_size=D)
    ours = {name: variable.numpy() for name, variable in BertEncoder(ALBERT).checkpoint_variables().items()}
    theirs = to_hf(ours, ALBERT, "checkpoint").arrays
    with pytest.raises(UserError, match="unknown: .*embedding_hidden_mapping_in.bias"):
        from_hf({f"albert.{name}": array for name, array in theirs.items()}, equal, "folder")
    with pytest.raises(UserError, match="embedding_size equals hidden_size"):
        equal.to_hugging_face("AlbertModel", None)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (ALBERT, CONFIG, "has ALBERT's shared layers, but the config is a BERT's; give the albert_config.json"),
        (CONFIG, ALBERT, "has the layers of a BERT, .* is an ALBERT's .num_hidden_groups.; give the bert_config.json"),
    ],
    ids=["ALBERT's checkpoint", "BERT's checkpoint"],
)
def test_the_error_names_the_config_of_the_other_family(tmp_path, given, wanted, message):
    prefix = BertEncoder(given).save_checkpoint(tmp_path / "given")
    variables = BertEncoder(wanted).trainable_variables
    with pytest.raises(UserError, match=message):
        load(CheckpointReader(prefix), variables)
    with pytest.raises(UserError, match=message):
        BertEncoder.from_checkpoint(tmp_path / "given", bert_config=wanted)
    reader = CheckpointReader(prefix)
    with pytest.raises(UserError, match=message):
        to_hf({name: reader.read(name) for name in reader.shapes}, wanted, prefix)
