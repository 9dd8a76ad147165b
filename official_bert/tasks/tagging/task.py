"""Tagging task: model, losses, and the tags that are chosen from scores."""

from collections.abc import Iterable, Mapping, Sequence

import keras
import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.metrics.tagging import allowed_pairs, has_entities, scheme_of
from official_bert.modeling.heads import CRF
from official_bert.modeling.tagging import TaggingModel, Transitions, log_partition, path_scores
from official_bert.serving.text_model import Tensors, TextModel, TrainedModel
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.tagging.options import CHARACTERS, TaggingConfig
from official_bert.tasks.tagging.records import FEATURE_SCHEMA, LABELS, TAGGING_SCHEMA
from official_bert.tokenization import Tokenizer
from official_bert.training.run_folder import LABELS_FILE, read_trained_labels
from official_bert.training.task import (
    TEACHER_LOGITS,
    EncoderTask,
    Tensor,
    WeightedSum,
    soft_cross_entropy,
    sparse_cross_entropy,
)

# Outputs per record.
TAG_NUMBERS, TAG_SCORES, LOSS_SUM, NUM_LABELLED = "tag_numbers", "tag_scores", "loss_sum", "num_labelled"
_FORBIDDEN = -1e4  # not infinite: if every sequence is forbidden, the one with the fewest breaks is the best

# B: sentences, W: words of all sentences, C: tags.


class TaggingTask(EncoderTask):
    """Prediction of the tag of each word, at its first wordpiece. Source: BERT paper, section 4.3."""

    def __init__(
        self, config: BertConfig, *, num_tags: int, max_seq_length: int, decodes_sequences: bool = False, **options
    ):
        super().__init__(TaggingModel, config, num_outputs=num_tags, **options)
        self._has_crf = options.get("head") == CRF
        self._num_tags = num_tags
        self._max_seq_length = max_seq_length
        self._decodes_sequences = decodes_sequences
        self.schema = self._sized(TAGGING_SCHEMA)  # the record schema, with lengths and limits
        # the teacher's logits at each position of a record
        self.teacher_field = Field(
            TEACHER_LOGITS, (max_seq_length, num_tags), "float32", is_per_position=True, is_trimmed=True
        )

    def build_model(self) -> keras.Model:
        self._model = super().build_model()  # the losses of a CRF need its variables
        return self._model

    def feature_schema(self, model: TaggingModel) -> RecordSchema:
        return self._sized(FEATURE_SCHEMA, W=int(np.prod(model.feature_shape)))

    def losses(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        losses, weights = self._losses(outputs, batch)
        return {"tagging": WeightedSum(ops.sum(losses), ops.sum(weights))}

    def soft_target_loss(
        self, outputs: Tensor, teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        weights = _weights(batch)
        losses = soft_cross_entropy(outputs, teacher_logits, temperature)  # [B, S]
        return WeightedSum(ops.sum(losses * weights), ops.sum(weights))

    def predictions(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs per window: loss_sum and num_labelled [B], and at full length tag_numbers, int32 [B, S].

        To decode sequences, they have tag_scores, float32 [B, S, C], instead of tag_numbers.
        """
        losses, weights = self._losses(outputs, batch)
        num_missing = self._max_seq_length - ops.shape(outputs)[1]
        if self._decodes_sequences:
            of_tags = {TAG_SCORES: ops.pad(outputs, [[0, 0], [0, num_missing], [0, 0]])}
        else:
            numbers = ops.argmax(outputs, axis=-1)
            of_tags = {TAG_NUMBERS: ops.pad(numbers, [[0, 0], [0, num_missing]])}
        return {**of_tags, LOSS_SUM: ops.sum(losses, axis=1), NUM_LABELLED: ops.sum(weights, axis=1)}

    def _losses(self, logits: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return losses, float32 [B, S] or [B, 1], and the weight at each position; both 0 where no word is tagged."""
        labels, weights = batch[LABELS.name], _weights(batch)
        if not self._has_crf:
            losses = sparse_cross_entropy(ops.maximum(labels - 1, 0), logits)
            return losses * weights, weights
        length = ops.shape(labels)[1]
        words_first = ops.argsort(ops.arange(length) + ops.where(labels == 0, length, 0), axis=1)  # [B, S]
        labels = ops.take_along_axis(labels, words_first, axis=1)
        logits = ops.take_along_axis(logits, words_first[..., None], axis=1)
        is_word, tags = labels > 0, ops.maximum(labels - 1, 0)
        transitions = self._model.transitions
        losses = log_partition(logits, is_word, transitions) - path_scores(logits, tags, is_word, transitions)  # [B]
        return losses[:, None], weights

    def _sized(self, schema: RecordSchema, **sizes: int) -> RecordSchema:
        return schema.sized(
            S=self._max_seq_length,
            V=self._config.vocab_size,
            T=self._config.num_segments,
            N=self._num_tags + 1,
            **sizes,
        )


def _weights(batch: Mapping[str, Tensor]) -> Tensor:
    """Return 1 at positions with a known tag, otherwise 0; float32 [B, S]."""
    return ops.cast(batch[LABELS.name] > 0, "float32")


def check_constrainable(tags: Sequence[str], sentences: Iterable[Sequence[str]] = ()) -> None:
    """Raise unless the tags have a scheme whose rules can guide decoding."""
    if not has_entities(tags):
        raise UserError(
            f"constrained_decoding needs tags of entities, such as B-PER and I-PER; the tags are {format_names(tags)}"
        )
    if scheme_of(sentences) == "IOB1":
        raise UserError(
            "constrained_decoding needs tags in IOB2 or IOBES; these are in IOB1, where entities begin with I, so that "
            "almost every sequence is allowed"
        )


def scheme_transitions(tags: Sequence[str]) -> Transitions:
    """Return transitions that forbid sequences which break the rules of IOB2 or IOBES; see `allowed_pairs`."""
    scores = np.where(allowed_pairs(tags), 0, _FORBIDDEN).astype(np.float32)
    return Transitions(scores[-1, :-1], scores[:-1, :-1], scores[:-1, -1])


def transitions_of(model: TaggingModel, tags: Sequence[str], config: TaggingConfig) -> Transitions | None:
    """Return the transitions to decode with: those of the CRF and of the scheme, as the flags say; None for neither."""
    sources = [
        *([Transitions(*map(np.asarray, model.transitions))] if config.head == CRF else []),
        *([scheme_transitions(tags)] if config.constrained_decoding else []),
    ]
    return Transitions(*(sum(parts) for parts in zip(*sources, strict=True))) if sources else None


def trained_tags(config: TaggingConfig) -> list[str]:
    tags = read_trained_labels(config.output_dir, config.init_checkpoint)
    if not tags:
        raise UserError(
            f"{config.output_dir} has no {LABELS_FILE}, which names the tags of a trained model; train first, or give "
            "the output folder of a run that did"
        )
    return tags


class TaggingTextModel(TextModel):
    """Tags of the words of a sentence, and the entities that they mark."""

    task = "tagging"
    text_names = ("text",)
    per_position = ("probabilities",)

    def __init__(
        self,
        model: TaggingModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        tags: Sequence[str],
        max_seq_length: int,
        transitions: Transitions | None = None,
        of_characters: bool = False,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        self._of_characters, self._transitions = of_characters, transitions
        self.tags = tuple(tags)  # names of the C tags
        scores = transitions and [np.asarray(part).tolist() for part in transitions]
        self._details = lambda: {"tags": list(tags), "of_characters": of_characters, "transitions": scores}

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        config, tags = run.config, trained_tags(run.config)
        if config.constrained_decoding:
            check_constrainable(tags)
        model = run.load(TaggingModel, num_outputs=len(tags))
        return cls(
            model,
            run.bert_config,
            run.tokenizer,
            tags=tags,
            max_seq_length=config.max_seq_length,
            transitions=transitions_of(model, tags, config),
            of_characters=config.file_layout == CHARACTERS,
        )

    def numbers(self, inputs: Tensors) -> Tensors:
        """Return the probabilities of the tags, [B, S, C]; a word's are at its first piece."""
        return {"probabilities": ops.softmax(self._run_model(inputs))}


TEXT_MODEL = TaggingTextModel
