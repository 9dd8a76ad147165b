"""Exports of tiny models of all tasks with random weights, made in seconds."""

import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import Prompts
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.heads import LINEAR, ClassificationModel, MultipleChoiceModel, SpanModel
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.sentence import SentenceModel
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving.exports import write_export, write_lite, write_onnx
from official_bert.tasks.classification.servable import ClassificationServable
from official_bert.tasks.classification.task import ClassOutputs
from official_bert.tasks.multiple_choice.servable import MultipleChoiceServable
from official_bert.tasks.pretraining.servable import PretrainingServable
from official_bert.tasks.question_answering.data import WindowOptions
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from official_bert.tasks.tagging.servable import TaggingServable
from official_bert.tokenization import FullTokenizer

PAIRS = [("the town", "a river"), ("", ""), ("Zoë’s ﬁne café", "東京 tower"), ("bright word " * 40, "the town")]
PROMPTS = Prompts({"query": "the river "}, "the ")  # of most sentence encoders, whose export is then made once
LABELS, TAGS = ("bad", "good", "mixed"), ("O", "B-PER", "I-PER")
_LENGTH = 32


def _classifier(
    encoder, labels=LABELS, problem="single_label", thresholds=None, max_windows=1, activation="Identity", **common
):
    """Return a classifier, by default of pairs, or a regression without labels."""
    common = {"is_pair": True, "max_seq_length": _LENGTH, "max_windows": max_windows, **common}
    length = common["max_seq_length"] if max_windows > 1 else None
    model = ClassificationModel(encoder, num_outputs=len(labels) or 1, window_length=length)
    outputs = ClassOutputs(problem if labels else "regression", labels, thresholds, activation)
    return model, ClassificationServable(model, **common, outputs=outputs)


def _multiple_choice(encoder, **common):
    model = MultipleChoiceModel(encoder)
    return model, MultipleChoiceServable(model, **common, max_seq_length=_LENGTH, has_question=True)


def _question_answering(encoder, **common):
    model = SpanModel(encoder)
    options = WindowOptions(max_seq_length=_LENGTH, doc_stride=8, max_query_length=8)
    return model, QuestionAnsweringServable(model, **common, options=options)


def _tagging(encoder, tags=TAGS, head=LINEAR, **common):
    model = TaggingModel(encoder, num_outputs=len(tags), head=head)
    return model, TaggingServable(model, **common, tags=tags, max_seq_length=_LENGTH)


def _pretraining(encoder, **common):
    model = PretrainingModel(encoder)
    return model, PretrainingServable(model, **common, max_seq_length=_LENGTH)


def _sentence_encoder(encoder, poolings=("mean",), layers_after=((16, "tanh"), None), **common):
    model = SentenceModel(encoder, poolings=poolings, layers_after=layers_after)
    return model, SentenceServable(model, **common, max_seq_length=_LENGTH)


TASKS = {
    "classification": _classifier, "multiple_choice": _multiple_choice, "question_answering": _question_answering,
    "tagging": _tagging, "pretraining": _pretraining, "sentence_encoder": _sentence_encoder,
}  # fmt: skip


WRITERS = {"saved_model": write_export, "tflite": write_lite, "onnx": write_onnx}


def write_tiny_export(folder, task, *, bert_config_file, vocab_file, seed=1, export_format="saved_model", **options):
    """Write the next version of a model with random weights into a folder; return the version's folder."""
    config = BertConfig.from_json_file(bert_config_file)
    tf.keras.utils.set_random_seed(seed)
    encoder = BertEncoder(config, **({"layout": UnpaddedLayout} if export_format == "saved_model" else {}))
    model, servable = TASKS[task](encoder, config=config, tokenizer=FullTokenizer(vocab_file), **options)
    for variable in model.trainable_variables:  # large enough that texts matter
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.1))
    return WRITERS[export_format](str(folder), servable)
