"""`--spm_model_file` in the scripts: from records to exports, with a tiny ALBERT."""

import json
import random
import shutil

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.tokenization import SentencePieceTokenizer, load_tokenizer
from tests.conftest import assert_refused, run_here, run_program
from tests.export_fixtures import write_reviews
from tests.exports import LABELS, TOLERANCE, predicted
from tests.record_files import read_records
from tests.tokenization.sentencepiece_models import VOCAB_SIZE, write_model

SENTENCES = ("The Smith of fernhill has 2,000, irons.", "Agnes é saw 3, lanterns  in the ﬁeld — ΟΔΟΣ!")


@pytest.fixture(scope="module")
def albert(model_dir, tmp_path_factory):
    """The flags of a new model."""
    folder = tmp_path_factory.mktemp("albert")
    golden = BertConfig.from_json_file(str(model_dir / "bert_config.json")).to_dict()
    sizes = {"vocab_size": VOCAB_SIZE, "embedding_size": 8, "num_hidden_layers": 1, "inner_group_num": 2}
    config = AlbertConfig(**{**golden, **sizes})
    prefix = BertEncoder(config).save_checkpoint(folder / "model.ckpt-best")
    shutil.move(folder / "bert_config.json", folder / "albert_config.json")
    return {
        "bert_config_file": str(folder / "albert_config.json"), "init_checkpoint": prefix,
        "spm_model_file": write_model(folder / "30k-clean.model"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def classifier(albert, tmp_path_factory):
    """The flags of a trained and exported classifier."""
    folder = tmp_path_factory.mktemp("classifier")
    for name, count in (("train.tsv", 24), ("test.tsv", 5)):
        write_reviews(folder / name, random.Random(count), count)
    flags = {
        **albert, "task_name": "custom", "data_dir": str(folder), "text_a_column": "text", "text_b_column": "other",
        "label_column": "label", "train_file": "train.tsv", "predict_file": "test.tsv", "train_batch_size": 8,
        "output_dir": str(folder / "out"), "max_seq_length": 24, "num_train_epochs": 1.0,
        "export_dir": str(folder / "export"),
    }  # fmt: skip
    run_here("run_classifier", **flags, do_train=True, do_predict=True, do_export=True)
    return flags


ASKS_IN_BOTH_WAYS = """
import json, sys
sys.modules.update(dict.fromkeys(("jax", "pandas", "sklearn")))  # TensorFlow imports these if installed
import tensorflow as tf, tensorflow_text
text = tf.constant(["the smith"])
tf.saved_model.load(sys.argv[1] + "/1").signatures["text"](text_a=text, text_b=tf.constant([""]))
assert "official_bert" not in sys.modules
import official_bert
results = official_bert.Predictor(sys.argv[1])([tuple(pair) for pair in json.loads(sys.argv[2])])
print(json.dumps([result.probabilities for result in results]))
"""


@pytest.mark.slow
def test_an_export_answers_tensorflow_alone_and_predictor_in_a_new_process(classifier):
    rows = [line.split("\t")[:2] for line in open(f"{classifier['data_dir']}/test.tsv").read().splitlines()[1:]]
    of_export = json.loads(run_program(ASKS_IN_BOTH_WAYS, classifier["export_dir"], json.dumps(rows)))
    of_run = [result.probabilities for result in Predictor(classifier["output_dir"])(list(map(tuple, rows)))]
    for answers in (of_export, of_run):
        found = [[answer[label] for label in sorted(LABELS)] for answer in answers]
        np.testing.assert_allclose(found, predicted(classifier["output_dir"]), atol=TOLERANCE)


@pytest.mark.slow
def test_another_model_or_what_has_no_effect_is_refused(classifier, albert, tmp_path, vocab_file):
    other = write_model(tmp_path / "other.model", seed_sentencepiece_size=900)
    flags = {**classifier, "do_predict": True, "export_dir": None}
    for changes, parts in (
        ({"spm_model_file": other}, [f"{other} is not the vocabulary", "spiece.model"]),
        ({"vocab_file": vocab_file}, ["--vocab_file cannot be used with --spm_model_file"]),
        ({"strip_accents": False}, ["--strip_accents=false cannot be used with a SentencePiece model"]),
        ({"spm_model_file": None}, ["--vocab_file", "is missing"]),
    ):
        assert_refused("run_classifier", {**flags, **changes}, *parts)


def test_records_mask_whole_words(albert, tmp_path, corpus_file):
    tokenizer = SentencePieceTokenizer(albert["spm_model_file"])
    flags = {"input_file": corpus_file, "output_file": str(tmp_path / "out"), "do_whole_word_mask": True}
    sizes = {"max_seq_length": 48, "max_predictions_per_seq": 12, "dupe_factor": 1}
    run_here("create_pretraining_data", **flags, **sizes, spm_model_file=albert["spm_model_file"])
    continues = {index for piece, index in tokenizer.vocab.items() if tokenizer.vocabulary.continues_word(piece)}
    specials = {tokenizer.cls_id, tokenizer.sep_id}  # truncation may cut a word in two
    num_words = 0
    columns = read_records(flags["output_file"])
    names = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    for ids, positions, labels, weights in zip(*(columns[name] for name in names), strict=True):
        masked = set(positions[weights == 1])
        ids[positions[weights == 1]] = labels[weights == 1]
        for position in masked:
            assert ids[position] not in continues or position - 1 in masked or ids[position - 1] in specials
            assert ids[position + 1] not in continues or position + 1 in masked
            num_words += ids[position + 1] in continues
    assert num_words > 20


def test_hugging_face_folders_keep_the_model_file(albert, tmp_path):
    made, back = tmp_path / "hf", tmp_path / "back"
    run_here("convert_hf_checkpoint", to_hf=True, output_dir=str(made), **albert)
    assert json.loads((made / "tokenizer_config.json").read_text())["tokenizer_class"] == "AlbertTokenizer"
    run_here("convert_hf_checkpoint", hf_dir=str(made), output_dir=str(back))
    for folder in (made, back):
        assert (folder / "spiece.model").read_bytes() == open(albert["spm_model_file"], "rb").read()
        assert not (folder / "vocab.txt").exists()
    assert load_tokenizer(made).settings.do_lower_case
    encoder = BertEncoder.from_checkpoint(back)
    assert encoder.config.vocab_size == VOCAB_SIZE
