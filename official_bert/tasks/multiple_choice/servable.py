"""Servable multiple choice: map a context and its choices to probabilities."""

import tensorflow as tf

from official_bert.modeling.heads import NO_CHOICE
from official_bert.serving.servable import Tensors, WindowedServable, check_table_size, check_total_size
from official_bert.tasks.multiple_choice.reader import CHOICES
from official_bert.tasks.multiple_choice.task import ChoiceTextModel
from official_bert.tokenization.graph_operations import Parts, join_parts, rows_of

# B: examples, N: choices per example, R: choices of all examples.


class MultipleChoiceServable(ChoiceTextModel, WindowedServable):
    """A model of `run_multiple_choice`; the sequences of its choices are the windows of an example."""

    def sample_texts(self, num_wordpieces: int) -> list[str]:
        *texts, choice = super().sample_texts(num_wordpieces)
        return [*texts, f"{choice}\n{choice}"]

    def cut(
        self, context: tf.Tensor, choices: tf.Tensor, question: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Tensors]:
        """Join each context with its question, if any, and each of its choices.

        `choices` has at least two, one per line; blank lines at the end do not count.
        """
        with tf.device("CPU:0"):
            lines = _lines(choices)
            example, texts = rows_of(lines), lines.flat_values
            if question is not None:
                before = tf.gather(question, example)
                texts = tf.where(before == "", texts, tf.strings.join([before, texts], separator=" "))
            tokenizer, length = self._graph_tokenizer(), self.max_seq_length
            first, second = (tokenizer.encode_beginnings(each, length) for each in (context, texts))
            room = tf.constant(self._specials.room(length, is_pair=True), tf.int64)
            kept_second = tf.minimum(second.row_lengths(), room)
            kept_first = tf.minimum(tf.gather(first.row_lengths(), example), room - kept_second)
        return example, join_parts(
            Parts(first.flat_values, tf.gather(first.row_starts(), example), kept_first),
            Parts(second.flat_values, second.row_starts(), kept_second),
            specials=self._specials,
        )

    def answer(self, **texts: tf.Tensor) -> Tensors:
        """Return the choices and their probabilities, [B, N], "" and 0 for missing ones, and the number of the best."""
        texts[CHOICES] = check_total_size(texts[CHOICES], CHOICES)
        ids = self.cut(**texts)[1]
        scores = self.predict_in_batches(ids, self._output_specs())["scores"]
        with tf.device("CPU:0"):
            lines = _lines(texts[CHOICES])
            lengths = check_table_size(lines.nrows(), lines.row_lengths())
            table = tf.RaggedTensor.from_row_lengths(scores, lengths, validate=False).to_tensor(NO_CHOICE)  # [B, N]
            probabilities = tf.nn.softmax(table)
            return {
                "probabilities": probabilities,
                "choices": lines.to_tensor(),
                "best": tf.argmax(probabilities, axis=1, output_type=tf.int32),
            }


def _lines(choices: tf.Tensor) -> tf.RaggedTensor:
    """Split choices, string [B], into lines without surrounding blanks; fail unless each example has two or more."""
    lines = tf.strings.split(tf.strings.regex_replace(choices, r"\s+\z", ""), "\n")
    message = f"{CHOICES} must have at least two lines, one per choice"
    has_two = tf.debugging.assert_greater(lines.row_lengths(), tf.constant(1, tf.int64), message=message)
    with tf.control_dependencies([has_two]):
        return tf.ragged.map_flat_values(tf.strings.strip, lines)


servable_of_run = MultipleChoiceServable.of_run
