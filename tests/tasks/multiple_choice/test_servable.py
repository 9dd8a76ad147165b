"""Sequences and probabilities of the servable, compared with records and with the model."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import MultipleChoiceModel
from official_bert.support.errors import UserError
from official_bert.tasks.multiple_choice.data import LABEL, ChoiceJoiner, Example, choice_schema
from official_bert.tasks.multiple_choice.job import report_sections
from official_bert.tasks.multiple_choice.servable import MultipleChoiceServable
from official_bert.tokenization import FullTokenizer
from tests.exports import graph_predictor

LENGTH = 14
LONG = "the rain and the snow and the harbour and the bridge and the mirror"


def example(context, question, *choices):
    return Example(context, question, choices, 0, (), "")


EXAMPLES = [
    example("the rain", "who", "snow", "a warm bridge", "mirror"),
    example(LONG, "what", "the town", LONG),  # a long context, and a choice that needs all positions
    example("", "", "snow", "the, rain!", "Ünïcode \u4e2d", "a"),
    example("the town", "", LONG + " again", "x"),
]


@pytest.fixture(scope="module")
def joiner(vocab_file):
    return ChoiceJoiner(FullTokenizer(vocab_file), LENGTH)


@pytest.fixture(scope="module")
def servable(joiner, one_layer_config_file):
    tf.keras.utils.set_random_seed(1)
    model = MultipleChoiceModel(BertEncoder(BertConfig.from_json_file(one_layer_config_file)))
    for variable in model.trainable_variables:
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.1))
    return MultipleChoiceServable(
        model, model.encoder.config, joiner.tokenizer, max_seq_length=LENGTH, has_question=True
    )


def texts_of(examples):
    columns = zip(*((each.context, each.question, "\n".join(each.choices)) for each in examples), strict=True)
    return dict(zip(("context", "question", "choices"), map(tf.constant, map(list, columns)), strict=True))


def decoded(joiner, examples, counts):
    schema = choice_schema(4, LENGTH, vocab_size=joiner.tokenizer.vocabulary.size, num_segments=2)
    records = [schema.encode({**joiner.join(each, counts), LABEL: [each.label]}) for each in examples]
    return {name: tensor.numpy() for name, tensor in schema.decode(records).items()}


def test_the_context_is_truncated_and_never_a_choice_that_fits(joiner):
    counts, wordpieces = Counter(), joiner.tokenizer.encode
    record = decoded(joiner, EXAMPLES[1:2], counts)
    lengths = record["text_lengths"][0]
    assert lengths.tolist() == [LENGTH, LENGTH, 0, 0]
    ids, second = record["input_ids"][0], wordpieces("what the town")
    assert ids[LENGTH - len(second) - 1 : LENGTH - 1].tolist() == second
    context = ids[1 : LENGTH - len(second) - 2].tolist()
    assert context == wordpieces(LONG)[: len(context)]
    assert record["segment_ids"][0, :LENGTH].tolist() == [0] * (LENGTH - len(second) - 1) + [1] * (len(second) + 1)
    assert (counts["sequences"], counts["contexts"], counts["choices"]) == (2, 2, 1)


def test_sequences_are_those_of_records(servable, joiner):
    records, found = decoded(joiner, EXAMPLES, Counter()), servable.tokenize(**texts_of(EXAMPLES))
    for row, lengths in enumerate(records["text_lengths"]):
        assert np.array_equal(tf.reduce_sum(found["input_mask"][row], axis=1), lengths)
        for name, values in found.items():
            sequences = [sequence[:length] for sequence, length in zip(values[row].numpy(), lengths, strict=True)]
            np.testing.assert_array_equal(np.concatenate(sequences), records[name][row, : sum(lengths)])


@pytest.mark.slow
def test_probabilities_are_those_of_the_model(servable, joiner):
    records = decoded(joiner, EXAMPLES, Counter())
    expected = tf.nn.softmax(servable._run_model(records)).numpy()
    predict = graph_predictor(servable)
    found = predict([(each.context, each.question, list(each.choices)) for each in EXAMPLES])
    for each, choice, row in zip(EXAMPLES, found, expected, strict=True):
        np.testing.assert_allclose(choice.probabilities, row[: len(each.choices)], atol=1e-5)
        assert choice.number == row.argmax()
        assert choice.text == each.choices[choice.number]
        assert choice.probability == max(choice.probabilities)
    alone = predict(("the rain", "who", "snow\na warm bridge \nmirror\n"))
    assert alone.text == found[0].text
    np.testing.assert_allclose(alone.probabilities, found[0].probabilities, atol=1e-5)
    after_a_blank = predict(("the rain", "who", " \nsnow\na warm bridge\n \n"))  # the first line is a choice, too
    assert len(after_a_blank.probabilities) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="choices must have at least two lines, one per choice"):
        servable.answer(**texts_of([*EXAMPLES, example("the town", "", "alone\n ")]))
    for wrong in (("the rain", "who"), "the rain"):
        with pytest.raises(UserError, match="this model reads context and question and choices"):
            predict(wrong)
    for choices in ([], ["", "a"], "snow\n\ud800"):
        with pytest.raises(UserError, match="the choices are .*; give (a list of )?at least two"):
            predict(("the rain", "who", choices))


def test_a_mistake_is_reported_with_its_texts():
    case = Example("It rains.", "Why?", ("clouds", "sun"), 0, ("A", "B"), "7")
    sections = report_sections([case], np.array([[0.25, 0.75]], "f4"), scores={"eval_accuracy": 0.0}, lengths=[9])
    facts, texts = sections[-1].mistakes[0]
    assert facts == {"id": "7", "gold": "A", "predicted": "B", "probability": "0.7500", "of the gold choice": "0.2500"}
    assert [(text.name, text.parts[0].text, text.parts[0].mark) for text in texts] == [
        ("context", "It rains.", ""), ("question", "Why?", ""), ("A", "clouds", "gold"), ("B", "sun", "predicted"),
    ]  # fmt: skip
