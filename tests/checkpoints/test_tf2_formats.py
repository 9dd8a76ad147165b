"""Models in the formats of TensorFlow 2, compared with outputs of their original libraries in `tests/golden/tf2`."""

import os
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf

from official_bert import load_tokenizer
from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.support.errors import UserError
from official_bert.training.run_folder import read_labels
from tests.conftest import GOLDEN, slow

MODELS = GOLDEN / "tf2"
CASES = sorted(path.parent.name for path in MODELS.glob("*/expected.npz"))
# Of each library; the others have other heads, tables or names.
FEW = ("garden_pretrainer", "hub_bert", "keras_hub_bert", "keras_hub_electra")


def expected_of(case):
    expected = dict(np.load(MODELS / case / "expected.npz"))
    inputs = {"input_ids": expected["ids"], "input_mask": expected["mask"]}
    is_of_segments = "distilbert" not in case and "roberta" not in case
    return expected, inputs | ({"segment_ids": expected["segments"]} if is_of_segments else {})


HEADS = {
    "logits": ClassificationModel, "tag_logits": TaggingModel, "spans": SpanModel, "masked_lm_logits": PretrainingModel,
}  # fmt: skip


@pytest.mark.parametrize("case", [*FEW, *slow(*(case for case in CASES if case not in FEW))])
def test_a_model_computes_what_its_own_library_computed(case):
    expected, inputs = expected_of(case)
    head = next((name for name in HEADS if name in expected), None)
    options = {"num_outputs": expected[head].shape[-1]} if head in ("logits", "tag_logits") else {}
    model = HEADS.get(head, BertEncoder).from_checkpoint(MODELS / case, **options)
    found = getattr(model, "encoder", model)(inputs)
    if head == "masked_lm_logits":
        found |= model({**inputs, "masked_lm_positions": expected["positions"]})
    elif head == "spans":
        found |= model(inputs)
        expected["start_logits"], expected["end_logits"] = expected["spans"]
    elif head:
        found[head] = model(inputs)
    for name in found.keys() & expected.keys():
        known = np.isfinite(expected[name])  # positions at padding differ for a RoBERTa
        np.testing.assert_allclose(found[name][known], expected[name][known], atol=1e-5, err_msg=name)


def test_the_vocabulary_and_the_casing_are_those_of_the_folder(tmp_path):
    text = "The dogs running. th\N{LATIN SMALL LETTER E WITH ACUTE}"
    presets = [case for case in CASES if "text_ids" in expected_of(case)[0]]
    assert len(presets) == 6
    for case in presets:
        assert load_tokenizer(MODELS / case).encode(text) == expected_of(case)[0]["text_ids"].tolist()
    folder = shutil.copytree(MODELS / "hub_bert", tmp_path / "hub_bert")
    (folder / "assets" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    assert not load_tokenizer(folder).settings.do_lower_case  # the vocabulary alone does not determine it
    pieces = load_tokenizer(MODELS / "hub_albert")
    assert (type(pieces).__name__, pieces.settings.do_lower_case) == ("SentencePieceTokenizer", True)
    preset = shutil.copytree(MODELS / "keras_hub_albert", tmp_path / "preset")
    (preset / "assets" / "tokenizer").mkdir(parents=True)
    shutil.copy(pieces.vocabulary.source, preset / "assets" / "tokenizer" / "vocabulary.spm")
    assert load_tokenizer(preset).tokenize("the dog runs") == pieces.tokenize("the dog runs")


@pytest.mark.slow
def test_a_finished_head_answers_with_the_labels_beside_it(tmp_path):
    text = "the dog ."
    for case, model_class in (("keras_hub_bert", ClassificationModel), ("garden_tags", TaggingModel)):
        folder = shutil.copytree(MODELS / case, tmp_path / case)
        assert read_labels(str(folder)) is None  # the config.json of a preset has no labels
        (folder / "labels.json").write_text('["x", "y", "z"]')
        inputs = load_tokenizer(folder)(text)
        logits = model_class.from_checkpoint(folder, num_outputs=3)(inputs)[0].numpy()
        result = Predictor(folder)(text)
        if case == "garden_tags":
            assert result.tags == ["xyz"[number] for number in logits[1:-1].argmax(axis=-1)]
        else:
            assert result.label == "xyz"[logits.argmax()]


@pytest.mark.slow
def test_a_masked_lm_preset_fills_masks_and_a_classifier_without_labels_says_so():
    folder = MODELS / "keras_hub_xlm_roberta"  # without a pooler
    predict = Predictor(folder)
    tokenizer, (sequence,) = predict._model.tokenizer, predict._model.reader.encode("the <mask> runs").sequences
    ids = {name: np.array([[*values]]) for name, values in sequence.items()}
    place = np.argmax(ids["input_ids"][0] == tokenizer.mask_id)
    logits = PretrainingModel.from_checkpoint(folder)({**ids, "masked_lm_positions": [[place]]})["masked_lm_logits"]
    ((best, *_),) = predict("the <mask> runs")
    assert best.word == tokenizer.vocabulary.id_to_token[np.argmax(logits)]
    assert best.probability == pytest.approx(tf.nn.softmax(logits[0, 0]).numpy().max(), abs=1e-5)
    with pytest.raises(UserError, match="or with a classifier, but without its labels.json"):
        Predictor(MODELS / "keras_hub_bert")("the dog")


def test_the_shapes_say_what_no_file_says():
    sizes = {"vocab_size": 14, "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2}
    for name in ("garden_encoder_v2/ckpt.index", "hub_bert/saved_model.pb", "keras_hub_bert/config.json"):
        assert vars(BertConfig.from_json_file(str(MODELS / name))).items() >= sizes.items()
    albert = BertConfig.from_json_file(str(MODELS / "hub_albert" / "saved_model.pb"))
    assert (albert.family_name, albert.num_hidden_layers, albert.embedding_size) == ("albert", 3, 8)
    electra = open_checkpoint(str(MODELS / "keras_hub_electra_unprojected"), "init_checkpoint").shapes
    assert not [name for name in electra if "embeddings" not in name and "encoder/layer_" not in name]


def spoil_object_names(folder):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model(np.zeros([1, 3], np.float32))
    tf.train.Checkpoint(model=model).write(str(folder / "bert_model.ckpt-1"))


def delete(name):
    return lambda folder: (folder / name).unlink()


def cut(name):
    return lambda folder: os.truncate(folder / name, os.path.getsize(folder / name) // 2)


def edit(name, old, new):
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


def damage_object_graph(folder):
    prefix = str(folder / "ckpt")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    write_checkpoint(prefix, tensors | {"_CHECKPOINTABLE_OBJECT_GRAPH": tf.constant(b"\xff\xff")})


@pytest.mark.parametrize(
    ("case", "spoil", "message"),
    [
        ("hub_bert", delete("variables/variables.index"), "has a saved_model.pb, but no .*variables.index; download"),
        ("hub_bert", cut("saved_model.pb"), "saved_model.pb cannot be read as a SavedModel"),
        ("garden_albert", delete("albert_config.json"), "its layers share .* put the model's albert_config.json be"),
        ("garden_pretrainer", spoil_object_names, "has no transformer layers with the Model Garden's names; give"),
        ("garden_encoder_v2", damage_object_graph, "has a damaged object graph; download its files again"),
        (
            "keras_hub_bert", edit("task.json", '"BertTextClassifier"', '"BertTokenTagger"'),
            "task.json describes a BertTokenTagger, whose head is not supported; .* remove task.weights.h5",
        ),
        ("keras_hub_bert", cut("model.weights.h5"), "model.weights.h5 is damaged, truncated"),
        (
            "keras_hub_bert", edit("config.json", '"num_layers": 2', '"num_layers": 1'),
            r"has layers/transformer_encoder_1/\S*_dense/vars/0, .*_norm/vars/1, which a BERT does not have; is it a",
        ),
        (
            "keras_hub_bert", edit("config.json", '"num_layers": 2', '"num_layers": "2"'),
            "config.json: config.num_layers is '2'; it must be a whole number",
        ),
        ("keras_hub_bert", delete("config.json"), "there is no bert_config.json beside"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_read_is_named_with_what_to_do(tmp_path, case, spoil, message):
    folder = shutil.copytree(MODELS / case, tmp_path / case)
    spoil(folder)
    with pytest.raises(UserError, match=message):
        BertEncoder.from_checkpoint(folder)


WORDS = "layers/reversible_embedding/vars/0"
LAYER = "layers/transformer_encoder"


def replace_words(file, folder, **options):
    shape = file[WORDS].shape
    del file[WORDS]
    return file.create_dataset(WORDS, shape, **options)


def refer_to_a_file(file, folder):
    (folder / "secret").write_bytes(bytes(10_000))
    replace_words(file, folder, dtype="f4", external=[(str(folder / "secret"), 0, 10_000)])


def refer_to_a_data_set(file, folder):
    layout = h5py.VirtualLayout(file[WORDS].shape, "f4")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "words", file[WORDS].shape)
    del file[WORDS]
    file.create_virtual_dataset(WORDS, layout)


def link_to_a_file(file, folder):
    del file[WORDS]
    file[WORDS] = h5py.ExternalLink(str(folder / "other.h5"), "words")


def compress_a_chunk(file, folder):
    """A chunk may be larger than its data set."""
    replace_words(file, folder, dtype="f4", maxshape=(None, None), chunks=(2048, 2048), compression=1)[:] = 1


def fill(dtype, value):
    def spoil(file, folder):
        replace_words(file, folder, dtype=dtype)[:] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        *((refer, f"the data of {WORDS} is compressed or not in") for refer in (refer_to_a_file, refer_to_a_data_set)),
        (link_to_a_file, f"{WORDS} is one of too many links or leads elsewhere"),
        (lambda *place: replace_words(*place, dtype="f4", chunks=True), f"the data of {WORDS} is compressed or not in"),
        (compress_a_chunk, f"the data of {WORDS} is compressed or not in"),
        (lambda file, _: file.create_group("/".join(["a" * 60_000] * 40)), "aaa is one of too many links or"),
        (fill(h5py.string_dtype(), b"x"), f"{WORDS} has elements of variable length"),
        (fill("f8", 1e300), f"{WORDS} contains NaN or infinity, or numbers beyond float32"),
        (lambda file, _: file.copy(LAYER, f"{LAYER}_0"), f"has bert/encoder/layer_0/.* twice: {LAYER}/.*{LAYER}_0/"),
    ],
)
def test_a_preset_holds_each_variable_once_in_finite_numbers_of_its_own(tmp_path, spoil, message):
    folder = shutil.copytree(MODELS / "keras_hub_bert", tmp_path / "preset")
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        spoil(file, folder)
    with pytest.raises(UserError, match=message):
        BertEncoder.from_checkpoint(folder)


def test_a_missing_vocabulary_is_named(tmp_path):
    folder = shutil.copytree(MODELS / "hub_bert", tmp_path / "hub_bert")
    (folder / "assets" / "vocab.txt").unlink()
    with pytest.raises(UserError, match="hub_bert has no vocabulary: neither .* nor one in assets"):
        load_tokenizer(folder)
    with pytest.raises(UserError, match="keras_hub_albert has no vocabulary: neither .* nor one in assets/tokenizer"):
        load_tokenizer(MODELS / "keras_hub_albert")
