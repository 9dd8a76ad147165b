"""Attributions: the contribution of each wordpiece to a prediction, from gradients of its word embedding."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from official_bert.serving.servable import Servable
from official_bert.tasks.classification.servable import PREDICTED, ClassificationServable
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.tagging.servable import TaggingServable
from official_bert.visualization.attention import Attributions

_OUTSIDE = "O"  # the tag outside of entities
_NUM_STEPS = 32  # between the baseline and the text

# S: wordpieces, V: vocabulary size, E: embedding width.
Inputs = dict[str, np.ndarray]
Score = Callable[[dict[str, tf.Tensor]], tf.Tensor]


def attribute(servable: Servable, inputs: Inputs, word_starts: Sequence[int]) -> Attributions | None:
    """Explain the prediction for a text or a pair of texts.

    The score is the log-probability of the predicted label, the predicted number, the sum of the logits of the
    answer's start and end, or the sum of the log-probabilities of the tags of all entities; without entities of all
    tags. The prediction is that of `Predictor`, also with thresholds, a CRF or constrained decoding; the probabilities
    of tags are those before decoding.

    Args:
      servable: a loaded model.
      inputs: input_ids, input_mask and segment_ids, int32 [1, S], without padding.
      word_starts: for tags, positions of the first wordpiece of each word between blanks; empty for pairs of texts.

    Returns:
      The attributions; None for other tasks, and for inputs longer than the model was trained to read at once.
    """
    if inputs["input_ids"].shape[1] > servable.max_seq_length:
        return None
    if servable.task not in EXPLAINED or (isinstance(servable, TaggingServable) and not word_starts):
        return None
    prediction, score = EXPLAINED[servable.task](servable, inputs, word_starts)
    words = servable.encoder.word_embeddings
    table = tf.convert_to_tensor(words.value)  # [V, E]
    ids = inputs["input_ids"][0]
    specials = {servable.tokenizer.cls_id, servable.tokenizer.sep_id}
    is_replaced = np.array([[id_ not in specials] for id_ in ids], np.float32)  # [S, 1]
    rows = tf.gather(table, ids).numpy()  # [S, E]
    differences = (rows - table[servable.tokenizer.mask_id].numpy()) * is_replaced

    @tf.function(autograph=False)
    def gradients(fraction: tf.Tensor) -> tf.Tensor:
        """Return the gradients at a fraction of the way from the baseline to the text, [S, E]."""
        moved = tf.tensor_scatter_nd_update(table, ids[:, np.newaxis], rows - (1 - fraction) * differences)
        with tf.GradientTape() as tape, keras.StatelessScope([(words, moved)]):
            tape.watch(moved)
            value = score(servable.predict({name: tf.constant(values) for name, values in inputs.items()}))
        return tape.gradient(value, moved).values  # of the lookup at each position

    steps = [gradients(tf.constant((step + 0.5) / _NUM_STEPS)).numpy() for step in range(_NUM_STEPS)]
    return Attributions(
        prediction,
        (gradients(tf.constant(1.0)).numpy() * rows).sum(axis=-1),
        (np.mean(steps, axis=0) * differences).sum(axis=-1),
    )


def _of_classifier(servable: ClassificationServable, inputs: Inputs, _: Sequence[int]) -> tuple[str, Score]:
    """Return the predicted label or number, and its score."""
    outputs = servable.predict(inputs)
    if "scores" in outputs:
        return f"{outputs['scores'].numpy()[0]:.4g}", lambda outputs: outputs["scores"][0]
    best_first = np.argsort(-outputs["probabilities"].numpy()[0], kind="stable").tolist()
    label = int(outputs[PREDICTED].numpy()[0]) if PREDICTED in outputs else best_first[0]
    name = outputs["classes"].numpy()[0, best_first.index(label)].decode()
    return name, lambda outputs: tf.math.log(outputs["probabilities"][0, label])


def _of_answer(servable: QuestionAnsweringServable, inputs: Inputs, _: Sequence[int]) -> tuple[str, Score]:
    """Return the best span of the second text, and its score."""
    outputs = servable.predict(inputs)
    starts, ends = (outputs[name].numpy()[0] for name in ("start_logits", "end_logits"))
    is_context = inputs["segment_ids"][0] == inputs["segment_ids"].max()
    is_span = np.triu(np.outer(is_context, is_context))
    start, end = np.unravel_index(np.where(is_span, starts[:, None] + ends, -np.inf).argmax(), is_span.shape)
    answer = servable.tokenizer.decode(inputs["input_ids"][0, start : end + 1])
    return answer, lambda outputs: outputs["start_logits"][0, start] + outputs["end_logits"][0, end]


def _of_tags(servable: TaggingServable, inputs: Inputs, word_starts: Sequence[int]) -> tuple[str, Score]:
    """Return the words of entities with their tags, or all words without entities, and their score."""
    ids = inputs["input_ids"][0]
    probabilities = tf.gather(servable.predict(inputs)["probabilities"][0], word_starts)  # [words, C]
    numbers, _ = servable.decide(probabilities, tf.constant([0, len(word_starts)], tf.int64))
    words = list(zip(word_starts, [*word_starts[1:], len(ids) - 1], numbers.numpy().tolist(), strict=True))
    words = [word for word in words if servable.tags[word[2]] != _OUTSIDE] or words
    tagged = [f"{servable.tokenizer.decode(ids[start:end])}: {servable.tags[number]}" for start, end, number in words]
    places = [[0, start, number] for start, _, number in words]
    return ", ".join(tagged), lambda outputs: tf.reduce_sum(tf.math.log(tf.gather_nd(outputs["probabilities"], places)))


# The tasks whose predictions can be explained.
EXPLAINED: dict[str, Callable[..., tuple[str, Score]]] = {
    ClassificationServable.task: _of_classifier,
    QuestionAnsweringServable.task: _of_answer,
    TaggingServable.task: _of_tags,
}
