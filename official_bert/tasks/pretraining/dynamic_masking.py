"""Dynamic masking: mask batches of unmasked records as they are read."""

from collections.abc import Sequence

import tensorflow as tf

from official_bert.data.graph_masking import GraphMasker
from official_bert.data.masking import BERT_REPLACEMENTS, Replacements
from official_bert.data.pipeline import RECORD_INDEX, evaluation_batches, training_batches
from official_bert.data.token_budget import TokenBudget
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.records import UNMASKED_SCHEMA
from official_bert.tokenization import Vocabulary, vocab


class DynamicMasking:
    """Masking of records with new masks each time they are read.

    Attributes:
      schema: the record schema, with lengths and limits.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        type_vocab_size: int,
        masked_lm_prob: float,
        do_whole_word_mask: bool,
        random_seed: int,
        replacements: Replacements = BERT_REPLACEMENTS,
    ):
        """Configure masking from the flags of `run_pretraining.py` and the number of segment types.

        `replacements` are `mask_replace_prob` and `random_replace_prob`.

        Raises:
          UserError: the vocabulary lacks a special token.
        """
        self.schema = UNMASKED_SCHEMA.sized(S=max_seq_length, V=vocabulary.size, T=type_vocab_size)
        self._vocabulary = vocabulary
        self._random_seed = random_seed
        self._maskers = {
            purpose: GraphMasker(
                vocabulary,
                masked_lm_prob=masked_lm_prob,
                max_seq_length=max_seq_length,
                max_predictions_per_seq=max_predictions_per_seq,
                whole_word=do_whole_word_mask,
                random_seed=random_seed,
                purpose=purpose,
                replacements=replacements,
            )
            for purpose in ("training", "evaluation")
        }

    def check_vocabulary(self, path: str) -> None:
        """Check the first record of a file against the vocabulary.

        Raises:
          UserError: its first wordpiece is not [CLS], so the records use another vocabulary.
        """
        cls_id = self._vocabulary.require(vocab.CLS)[0]
        for batch in evaluation_batches([path], self.schema, batch_size=1, max_batches=1):
            first = int(batch["input_ids"][0, 0])
            if first != cls_id:
                raise UserError(
                    f"{path}: record 0 (counted from 0) begins with the id {first}, but {vocab.CLS} is {cls_id} in "
                    f"{self._vocabulary.source}; give the vocabulary that the records were made with"
                )

    @tf.autograph.experimental.do_not_convert
    def training_batches(
        self,
        paths: Sequence[str],
        *,
        batch_size: int | TokenBudget,
        num_records: int,
        start_record: int,
        lengths: Sequence[int] | None = None,
    ) -> tf.data.Dataset:
        """Read and mask training batches; see `data.pipeline.training_batches` for arguments and order.

        The masks depend on the seed and the number of examples used since training began.
        """
        batches = training_batches(
            paths,
            self.schema,
            batch_size=batch_size,
            num_records=num_records,
            seed=self._random_seed,
            start_record=start_record,
            lengths=lengths,
        )

        def count(num_before, batch):
            num_examples = tf.shape(batch["input_ids"], tf.int64)[0]
            return num_before + num_examples, (num_before + tf.range(num_examples), batch)

        def mask(visits, batch):
            return self._maskers["training"].mask(batch, visits)

        counted = batches.scan(tf.constant(start_record, tf.int64), count)
        return counted.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    @tf.autograph.experimental.do_not_convert
    def evaluation_batches(self, paths: Sequence[str], *, batch_size: int, max_batches: int) -> tf.data.Dataset:
        """Read and mask evaluation batches; see `data.pipeline.evaluation_batches` for the arguments.

        The masks depend on the seed and record number: they are the same in every evaluation, and differ from those of
        training.
        """
        batches = evaluation_batches(paths, self.schema, batch_size=batch_size, max_batches=max_batches)

        def mask(batch):
            return self._maskers["evaluation"].mask(batch, tf.cast(batch[RECORD_INDEX], tf.int64))

        return batches.map(mask, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
