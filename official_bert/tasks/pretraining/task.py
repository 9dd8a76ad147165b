"""Pretraining tasks, masked LM with or without pairs, and replaced tokens: models, losses and metrics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.checkpoints.loading import generator_of, load, open_checkpoint, open_pretrained
from official_bert.checkpoints.locate import model_folders
from official_bert.config.bert_config import BertConfig
from official_bert.families.bert import ElectraConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN, UNPADDED, EncoderOptions
from official_bert.modeling.heads import EncoderModel
from official_bert.modeling.pretraining import PretrainingModel, ReplacedTokenPretrainingModel
from official_bert.modeling.sentence import normalized
from official_bert.modeling.token_model import complete_inputs
from official_bert.serving.signatures import Arrays
from official_bert.serving.text_model import IDS_SCHEMA, Tensors, TextModel, TrainedModel
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.data import PRETRAINING_SCHEMA
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization import Tokenizer, Vocabulary
from official_bert.training.run_folder import matches_vocabulary, vocabulary_mismatch
from official_bert.training.task import (
    Tensor,
    WeightedSum,
    mean_loss,
    soft_cross_entropy,
    sparse_cross_entropy,
    weighted,
)

# The heads, by their scopes.
MASKED_LM, NEXT_SENTENCE = "predictions", "seq_relationship"
MASK_POSITIONS, ARE_MASKS = "mask_positions", "are_masks"
EMPTY_WEIGHT = 1e-5  # reference value; keeps a batch without masked words finite
DISCRIMINATOR_WEIGHT = 50.0  # of the loss of replaced tokens; that of the generator is 1
_NEXT_SENTENCE_HEAD = "cls/seq_relationship/"  # the only part of a teacher that is not used


class PretrainingTask:
    """Masked LM plus next-sentence or sentence-order prediction.

    Source: BERT paper, section 3.1; for the order of sentences ALBERT paper, section 3.1.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        eval_batch_size: int,
        use_next_sentence: bool = True,
        sentence_order: bool = False,
        encoder_options: EncoderOptions = PLAIN,
    ):
        """Define the task.

        Without `use_next_sentence`, the head for pairs and the pooler are not trained. With `sentence_order`, pairs are
        in order or swapped; their losses and scores are called so, but the head is the same.
        """
        self._config = config
        self._eval_batch_size = eval_batch_size
        self._pair_task = ("sentence_order" if sentence_order else "next_sentence") if use_next_sentence else None
        self._encoder_options = encoder_options
        # the record schema, with lengths and limits
        self.schema = PRETRAINING_SCHEMA.sized(
            S=max_seq_length, P=max_predictions_per_seq, V=config.vocab_size, T=config.num_segments
        )

    def build_model(self) -> keras.Model:
        return PretrainingModel(create_encoder(self._config, self._encoder_options))

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        masked_lm = sparse_cross_entropy(batch["masked_lm_ids"], outputs["masked_lm_logits"])  # [B, P]
        losses = {"masked_lm": _over_masked(masked_lm, batch)}
        if self._pair_task:
            of_pairs = sparse_cross_entropy(batch["next_sentence_labels"], outputs["next_sentence_logits"])  # [B]
            losses[self._pair_task] = mean_loss(of_pairs)
        return losses

    def soft_target_loss(
        self, outputs: Mapping[str, Tensor], teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        return _over_masked(soft_cross_entropy(outputs["masked_lm_logits"], teacher_logits, temperature), batch)

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return losses and hits: masked_lm_* [B, P], and of pairs [B]."""
        learned = {"masked_lm": (batch["masked_lm_ids"], outputs["masked_lm_logits"])}
        if self._pair_task:
            learned[self._pair_task] = (batch["next_sentence_labels"], outputs["next_sentence_logits"])
        predictions = {"masked_lm_weight": batch["masked_lm_weights"]}
        for name, (labels, logits) in learned.items():
            predictions[f"{name}_loss"] = sparse_cross_entropy(labels, logits)
            predictions[f"{name}_hit"] = ops.cast(ops.argmax(logits, axis=-1) == labels, "float32")
        return predictions

    def scores(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the reference's five scores, or three without pairs; `loss` is the mean over batches."""
        predictions = {name: value.astype(np.float64) for name, value in predictions.items()}
        weights = predictions["masked_lm_weight"]
        scores = {
            "loss": self._mean_batch_loss(predictions),
            "masked_lm_accuracy": _weighted_mean(predictions["masked_lm_hit"], weights),
            "masked_lm_loss": _weighted_mean(predictions["masked_lm_loss"], weights),
        }
        if self._pair_task:
            scores[f"{self._pair_task}_accuracy"] = float(np.mean(predictions[f"{self._pair_task}_hit"]))
            scores[f"{self._pair_task}_loss"] = float(np.mean(predictions[f"{self._pair_task}_loss"]))
        return scores

    def _mean_batch_loss(self, predictions: Mapping[str, np.ndarray]) -> float:
        starts = range(0, len(predictions["masked_lm_loss"]), self._eval_batch_size)
        losses = []
        for start in starts:
            batch = {name: value[start : start + self._eval_batch_size] for name, value in predictions.items()}
            masked_lm = np.sum(batch["masked_lm_loss"] * batch["masked_lm_weight"])
            masked_lm /= np.sum(batch["masked_lm_weight"]) + EMPTY_WEIGHT
            losses.append(masked_lm + self._other_loss(batch))
        return float(np.mean(losses))

    def _other_loss(self, batch: Mapping[str, np.ndarray]) -> float:
        return np.mean(batch[f"{self._pair_task}_loss"]) if self._pair_task else 0


class ReplacedTokenTask(PretrainingTask):
    """Masked LM of a generator, and detection of the tokens that it replaces: Clark et al., 2020, section 2."""

    def __init__(self, config: ElectraConfig, *, generator_size: float, **settings: Any):
        """Define the task; the settings are those of `PretrainingTask`, without pairs."""
        super().__init__(config, use_next_sentence=False, **settings)
        self._generator_size = generator_size

    def build_model(self) -> keras.Model:
        encoder = create_encoder(self._config, self._encoder_options)
        return ReplacedTokenPretrainingModel(encoder, generator_size=self._generator_size)

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        is_real = ops.cast(batch["input_mask"], "float32")  # [B, S]
        total = DISCRIMINATOR_WEIGHT * ops.sum(_token_losses(outputs) * is_real)
        return {**super().losses(outputs, batch), "replaced_token": WeightedSum(total, ops.sum(is_real))}

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return losses and hits of masked tokens, [B, P], and sums over all tokens of each record, [B]."""
        is_replaced, is_detected = outputs["is_replaced"], outputs["replaced_token_logits"] > 0  # [B, S]
        of_tokens = {
            "num_tokens": ops.ones_like(is_replaced),
            "num_replaced": is_replaced,
            "num_detected": is_detected,
            "num_detected_replaced": ops.logical_and(is_replaced, is_detected),
            "num_hits": is_replaced == is_detected,
            "replaced_token_loss": _token_losses(outputs),
        }
        is_real = ops.cast(batch["input_mask"], "float32")
        sums = {name: ops.sum(ops.cast(value, "float32") * is_real, axis=1) for name, value in of_tokens.items()}
        sampled_hit = ops.cast(outputs["sampled_ids"] == batch["masked_lm_ids"], "float32")
        return {**super().predictions(outputs, batch), **sums, "sampled_hit": sampled_hit}

    def scores(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the scores of google-research/electra, without the area under the curve."""
        total = {name: np.sum(value, dtype=np.float64) for name, value in predictions.items()}
        ratios = {
            "accuracy": ("num_hits", "num_tokens"),
            "precision": ("num_detected_replaced", "num_detected"),
            "recall": ("num_detected_replaced", "num_replaced"),
            "loss": ("replaced_token_loss", "num_tokens"),
        }
        return {
            **super().scores(predictions),
            "sampled_masked_lm_accuracy": _weighted_mean(predictions["sampled_hit"], predictions["masked_lm_weight"]),
            **{f"replaced_token_{name}": float(total[a] / max(total[b], 1)) for name, (a, b) in ratios.items()},
        }

    def _other_loss(self, batch: Mapping[str, np.ndarray]) -> float:
        return DISCRIMINATOR_WEIGHT * np.sum(batch["replaced_token_loss"]) / np.sum(batch["num_tokens"])


def _token_losses(outputs: Mapping[str, Tensor]) -> Tensor:
    """Return the losses of the discriminator, float32 [B, S]."""
    is_replaced = ops.cast(outputs["is_replaced"], "float32")
    return ops.binary_crossentropy(is_replaced, outputs["replaced_token_logits"], from_logits=True)


def _over_masked(losses: Tensor, batch: Mapping[str, Tensor]) -> WeightedSum:
    """Return the mean of losses [B, P] over the masked positions."""
    weights = batch["masked_lm_weights"]
    return WeightedSum(ops.sum(losses * weights), ops.sum(weights) + EMPTY_WEIGHT)


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    total = np.sum(weights)
    return float(np.sum(values * weights) / total) if total else 0.0


class OutputsAndLayer(NamedTuple):
    """Outputs of a `LayeredModel`."""

    outputs: Any  # the outputs of the wrapped model
    layer: Tensor  # float [B, S, D], the last layer of its encoder


class LayeredModel(keras.Model):
    """A model that also returns its encoder's last layer."""

    def __init__(self, model: EncoderModel):
        super().__init__(autocast=False, dtype=model.dtype_policy, name="layered")
        self.model = model  # the wrapped model
        self.built = True

    @property
    def encoder(self):
        return self.model.encoder

    def call(self, inputs, training=False) -> OutputsAndLayer:
        """Compute outputs and layer; the inputs are those of the model, as a dict by name."""
        named = {name: inputs[name] for name in self.model.INPUTS}
        complete = complete_inputs(named)
        named.update(complete._asdict())
        encoded = self.encoder(complete, training=training)
        return OutputsAndLayer(
            self.model.from_encoded(encoded, named, training=training), encoded["encoder_layers"][-1]
        )


class DistilledPretrainingTask:
    """Pretraining whose student also learns its teacher's masked-word predictions and last layer.

    The teacher runs on the same batches, in training only. The additional losses are `soft_target` (the teacher's
    predictions of the masked words) and `cosine` (the angle between the last layers of both models), unless its weight
    is 0.

    Source: Sanh et al., "DistilBERT, a distilled version of BERT" (2019), section 2.
    """

    def __init__(
        self, task: PretrainingTask, bert_config: BertConfig, config: PretrainingConfig, *, dtype: str | None = None
    ):
        self._task = task
        self._weights = {
            "masked_lm": config.masked_lm_weight,
            "soft_target": config.soft_target_weight,
            "cosine": config.cosine_weight,
        }
        self.schema = task.schema  # the records of the task
        self.teacher: keras.Model | None = None
        self._temperature = config.distillation_temperature
        self._dtype = dtype
        self._reader, self._teacher_config = open_pretrained(config.teacher, parameter="teacher")
        self._teacher_config.check_length(config.max_seq_length, f"teacher={config.teacher}")
        _check_teacher(
            self._teacher_config, bert_config, self._reader.prefix, compares_layers=self._weights["cosine"] > 0
        )

    def build_model(self) -> keras.Model:
        """Create the student, variables included, and load the teacher."""
        student = LayeredModel(self._task.build_model())
        teacher = PretrainingModel(create_encoder(self._teacher_config, EncoderOptions(dtype=self._dtype)))
        load(
            self._reader, teacher.checkpoint_variables(), required=lambda name: not name.startswith(_NEXT_SENTENCE_HEAD)
        ).log()
        self.teacher = LayeredModel(teacher)
        self.teacher.trainable = False
        return student

    def losses(self, outputs: OutputsAndLayer, batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        """Run the teacher; return the losses of the task and those against it, each multiplied by its weight."""
        taught = self.teacher(batch, training=False)
        logits = taught.outputs["masked_lm_logits"]
        losses = self._task.losses(outputs.outputs, batch)
        losses["soft_target"] = self._task.soft_target_loss(outputs.outputs, logits, batch, self._temperature)
        if self._weights["cosine"]:
            losses["cosine"] = cosine_loss(outputs.layer, taught.layer, batch["input_mask"])
        return weighted(losses, self._weights)

    def predictions(self, outputs: OutputsAndLayer, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._task.predictions(outputs.outputs, batch)


def cosine_loss(student: Tensor, teacher: Tensor, input_mask: Tensor) -> WeightedSum:
    """Return 1 - the cosine similarity of two layers, float [B, S, D], averaged over unpadded positions."""
    student, teacher = (normalized(ops.cast(layer, "float32")) for layer in (student, teacher))
    distances = 1 - ops.sum(student * teacher, axis=-1)  # [B, S]
    is_real = ops.cast(input_mask, "float32")
    return WeightedSum(ops.sum(distances * is_real), ops.sum(is_real))


def check_teacher_vocabulary(teacher: str, vocabulary: Vocabulary) -> None:
    """Raise if the teacher's folder has another vocabulary than the run."""
    for folder in model_folders(teacher):
        if matches_vocabulary(folder, vocabulary) is False:
            raise UserError(vocabulary_mismatch(vocabulary, folder, f"teacher={teacher} was trained with"))


def _check_teacher(teacher: BertConfig, student: BertConfig, source: str, *, compares_layers: bool) -> None:
    if teacher.vocab_size != student.vocab_size:
        raise UserError(
            f"the teacher in {source} has vocab_size={teacher.vocab_size} and the student {student.vocab_size}; give a "
            "teacher and a student with the same vocabulary"
        )
    if teacher.num_segments < student.num_segments:
        raise UserError(
            f"the teacher in {source} has type_vocab_size={teacher.type_vocab_size} and the student "
            f"{student.type_vocab_size}; the teacher needs at least as many"
        )
    if compares_layers and teacher.hidden_size != student.hidden_size:
        raise UserError(
            f"the teacher in {source} has hidden_size={teacher.hidden_size} and the student {student.hidden_size}, so "
            "their last layers cannot be compared; give cosine_weight=0"
        )


class MaskTextModel(TextModel):
    """The most likely words for each [MASK]."""

    task = "pretraining"
    text_names = ("text",)

    def __init__(
        self, model: PretrainingModel, config: BertConfig, tokenizer: Tokenizer, *, max_seq_length: int, top_k: int = 5
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        self._mask = tokenizer.mask_id
        self._top_k = min(top_k, tokenizer.vocabulary.size)
        self._run_head = lambda vectors, positions: model.masked_lm(vectors, positions, model.encoder.word_embeddings)

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        model = load_model(run.bert_config, run.checkpoint, encoder_options=run.encoder_options)
        sizes = {"max_seq_length": run.config.max_seq_length, "top_k": run.config.export_top_k}
        return cls(model, model.config, run.tokenizer, **sizes)

    def prepared(self, ids: Arrays) -> Arrays:
        """Add the positions of masks, int32 [B, P], and which of them are masks, bool [B, P]."""
        are_masks = (ids["input_ids"] == self._mask) & (ids["input_mask"] == 1)
        places = np.argsort(~are_masks, axis=1, kind="stable")[:, : max(are_masks.sum(axis=1).max(initial=0), 1)]
        found = np.take_along_axis(are_masks, places, axis=1)
        return {**ids, MASK_POSITIONS: places.astype(np.int32), ARE_MASKS: found}

    def numbers(self, inputs: Tensors) -> Tensors:
        """Compute the ids and probabilities of the words for all masks, [B, P, K]; 0 where there is none."""
        ids = {name: inputs[name] for name in IDS_SCHEMA.names}
        logits = self._run_head(self._run_encoder(ids)["sequence_output"], inputs[MASK_POSITIONS])  # [B, P, V]
        best, words = ops.top_k(ops.softmax(logits)[..., : self.vocabulary.size], self._top_k)
        are_masks = inputs[ARE_MASKS][..., None]
        return {"ids": ops.where(are_masks, words, 0), "probabilities": ops.where(are_masks, best, 0.0)}


TEXT_MODEL = MaskTextModel


def load_model(
    bert_config: BertConfig,
    checkpoint: str,
    *,
    what: str = "checkpoint",
    encoder_options: EncoderOptions = UNPADDED,
    head: str = MASKED_LM,
) -> PretrainingModel:
    """Load the encoder and one head of a checkpoint, `MASKED_LM` or `NEXT_SENTENCE`; `what` names it in errors.

    The encoder for masked LM from ELECTRA's pretraining is its generator.
    """
    reader = open_checkpoint(checkpoint, what)
    if head == MASKED_LM:
        reader, bert_config = generator_of(reader, bert_config)
    model = PretrainingModel(create_encoder(bert_config, encoder_options))
    (unused,) = {MASKED_LM, NEXT_SENTENCE} - {head}
    used = [variable for variable in model.trainable_variables if f"/{unused}/" not in variable.path]
    # Masked LM needs no pooler, which some masked-LM models lack.
    report = load(reader, used, required=lambda name: head != MASKED_LM or "/pooler/" not in name)
    if report.missing:
        report.log(is_trained_next=False)
    return model
