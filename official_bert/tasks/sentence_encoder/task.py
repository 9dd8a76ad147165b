"""The sentence encoder task: model, loss functions and predictions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import TEXT_LENGTHS, BertConfig
from official_bert.config.sentence_modules import NO_PROMPTS, QUERY, Prompts
from official_bert.data.schema import Field, RecordSchema
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions
from official_bert.modeling.sentence import SentenceGroupModel, SentenceModel, normalized
from official_bert.options.groups import BINARY, FLOAT32, INT8, check_vector_size
from official_bert.serving.signatures import TOKEN_VECTORS
from official_bert.serving.text_model import Tensors, TextModel, TrainedModel
from official_bert.serving.versions import QUERY_WEIGHTS
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.data import LABEL, SCORES, TEXT_NUMBERS
from official_bert.tasks.sentence_encoder.reader import VECTORS
from official_bert.tokenization import Tokenizer
from official_bert.training.task import (
    TEACHER_LOGITS,
    Tensor,
    WeightedSum,
    gather_over_replicas,
    mean_loss,
    replica,
    soft_cross_entropy,
    sparse_cross_entropy,
)

COSENT_SCALE = 20.0
_BY_DOT_PRODUCT = ("contrastive", "distillation")  # losses that compare sparse vectors by their dot product
_LOWEST = float(np.finfo(np.float32).min)
_LARGEST_INT8 = 127
_RISE = 1 / 3  # of the weights of the regularizers, as in the paper

Batch = Mapping[str, Tensor]


def contrastive(vectors: Tensor, batch: Batch, *, temperature: float, symmetric: bool) -> WeightedSum:
    """Return the cross-entropy of picking each anchor's positive from all candidates of the batch (InfoNCE).

    A candidate with the same text or class as the anchor or its positive does not count as a negative. If `symmetric`,
    the anchor of each positive is also picked from all anchors.

    Source: van den Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018); Henderson et al.,
    "Efficient Natural Language Response Suggestion for Smart Reply" (2017).
    """
    numbers, num_texts = batch[TEXT_NUMBERS], vectors.shape[1]
    all_vectors, all_numbers = gather_over_replicas(vectors), gather_over_replicas(numbers)
    candidates = ops.reshape(all_vectors[:, 1:], [-1, vectors.shape[2]])  # [C, D]
    candidate_numbers = ops.reshape(all_numbers[:, 1:], [-1])
    num_examples = ops.shape(vectors)[0]
    index, _ = replica()
    rows = index * num_examples + ops.arange(num_examples)  # [b], among the examples of all replicas
    targets = rows * (num_texts - 1)
    losses = _ranked(vectors[:, 0], candidates, numbers[:, :2], candidate_numbers, targets, temperature)
    if symmetric:
        back = _ranked(vectors[:, 1], all_vectors[:, 0], numbers[:, :2], all_numbers[:, 0], rows, temperature)
        losses = (losses + back) / 2
    return mean_loss(losses)


def _ranked(queries, candidates, own_numbers, candidate_numbers, targets, temperature: float) -> Tensor:
    """Return the cross-entropy of each query, float32 [b].

    Candidates with one of the query's `own_numbers`, [b, 2], are not negatives.
    """
    logits = ops.matmul(queries, ops.transpose(candidates)) / temperature  # [b, C]
    is_own = ops.any(own_numbers[:, :, None] == candidate_numbers, axis=1)  # [b, C]
    is_left_out = is_own | (candidate_numbers == 0)
    is_target = ops.arange(ops.shape(candidates)[0]) == targets[:, None]
    logits = ops.where(is_left_out & ~is_target, _LOWEST, logits)
    return sparse_cross_entropy(targets, logits)


def cosine(vectors: Tensor, batch: Batch) -> WeightedSum:
    """Return the squared error of the cosine similarity of each pair, compared with its score."""
    return mean_loss(ops.square(similarities(vectors)[:, 0] - batch[SCORES][:, 0]))


def cosent(vectors: Tensor, batch: Batch) -> WeightedSum:
    """Return the CoSENT loss: a smooth penalty for pairs whose similarities are ordered against their scores.

    Source: Su, "CoSENT: A more efficient sentence vector scheme than Sentence-BERT" (2022).
    """
    scores = gather_over_replicas(batch[SCORES][:, 0])  # [B]
    cosines = gather_over_replicas(similarities(vectors)[:, 0]) * COSENT_SCALE
    differences = cosines[None, :] - cosines[:, None]  # [i, j]: similarity of pair j minus that of pair i
    is_wrong_way = scores[:, None] > scores[None, :]
    terms = ops.where(is_wrong_way, differences, _LOWEST)
    loss = ops.logsumexp(ops.pad(ops.reshape(terms, [-1]), [[1, 0]]))
    _, num_replicas = replica()
    share = 1.0 / num_replicas  # every replica computes the same loss
    return WeightedSum(loss * share, ops.convert_to_tensor(share))


def triplet(vectors: Tensor, batch: Batch, *, margin: float) -> WeightedSum:
    """Return the triplet loss: the Euclidean distance of each negative should exceed the positive's by the margin.

    Source: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
    """
    squares = ops.sum(ops.square(vectors[:, 1:] - vectors[:, :1]), axis=-1)
    distances = ops.sqrt(ops.maximum(squares, 1e-12))  # [b, K - 1]; the gradient of sqrt at 0 is infinite
    is_real = ops.cast(batch[TEXT_NUMBERS][:, 2:] != 0, "float32")  # [b, K - 2]
    losses = ops.relu(distances[:, :1] - distances[:, 1:] + margin) * is_real
    return WeightedSum(ops.sum(losses), ops.sum(is_real))


def soft_targets(vectors: Tensor, scores: Tensor, batch: Batch, *, temperature: float | None = None) -> WeightedSum:
    """Return the loss of the similarities against target scores, both [b, K - 1].

    Pairs use the squared error, several candidates the KL divergence of their softmax distributions.
    """
    found = similarities(vectors)
    if vectors.shape[1] == 2:
        return mean_loss(ops.square(found - scores)[:, 0])
    is_missing = batch[TEXT_NUMBERS][:, 1:] == 0
    student, teacher = (ops.where(is_missing, -1e9, values) for values in (found, scores))
    return mean_loss(soft_cross_entropy(student, teacher, temperature) / temperature**2)


def softmax(logits: Tensor, batch: Batch) -> WeightedSum:
    """Return the cross-entropy of the classes of pairs.

    Source: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
    """
    return mean_loss(sparse_cross_entropy(batch[LABEL], logits))


# Of vectors that are compared by their dot product; the task scales them to length 1 for cosine similarities.
LOSSES: dict[str, Callable[..., WeightedSum]] = {
    "contrastive": contrastive,
    "cosine": cosine,
    "cosent": cosent,
    "triplet": triplet,
    "distillation": lambda vectors, batch, **options: soft_targets(vectors, batch[SCORES], batch, **options),
}


def of_all_sizes(
    loss: Callable[[Tensor], WeightedSum], name: str, vectors: Tensor, sizes: tuple[int, ...]
) -> dict[str, WeightedSum]:
    """Compute a loss on full vectors, [b, K, D], and on vectors truncated to each size.

    Source: Kusupati et al., "Matryoshka Representation Learning" (2022).
    """
    losses = {f"{name}_{size}": loss(vectors[..., :size]) for size in sizes}
    return {name: loss(vectors), **losses}


def flops(vectors: Tensor, numbers: Tensor, weight: float) -> WeightedSum:
    """Return the FLOPS regularizer: the sum of the squared mean weights, [V], of the texts that are not missing.

    Source: Formal et al., "SPLADE" (2021), section 3.2; Paria et al., "Minimizing FLOPs to Learn Efficient Sparse
    Representations" (2020).
    """
    sums = gather_over_replicas(ops.sum(vectors, axis=[0, 1])[None])
    counts = gather_over_replicas(ops.sum(ops.cast(numbers != 0, "float32"))[None])
    means = ops.sum(sums, axis=0) / ops.maximum(ops.sum(counts), 1.0)  # [V]
    _, num_replicas = replica()
    share = 1.0 / num_replicas  # every replica computes the same loss
    return WeightedSum(weight * share * ops.sum(ops.square(means)), ops.convert_to_tensor(share), rise=_RISE)


def similarities(vectors: Tensor) -> Tensor:
    """Return the dot product of each anchor with its candidates: [b, K, D] to [b, K - 1]."""
    return ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)


class Objective(NamedTuple):
    loss: str  # a key of `LOSSES`, or "softmax"
    options: Mapping[str, Any] = {}  # arguments of the loss
    soft_target_options: Mapping[str, Any] = {}  # arguments of `soft_targets`, for a teacher
    vector_sizes: tuple[int, ...] = ()  # see `of_all_sizes`
    regularizer_weights: tuple[float, float] | None = None  # of sparse vectors, for `flops` of anchors and other texts


class SentenceEncoderTask:
    compares_examples = True  # the loss of an example depends on the other examples of the batch

    def __init__(
        self,
        config: BertConfig,
        schema: RecordSchema,
        objective: Objective,
        *,
        exported_size: int = 0,
        num_classes: int = 0,
        is_padded_to_longest: bool = True,
        bm25: Mapping[str, object] | None = None,
        encoder_options: EncoderOptions = PLAIN,
        **model_options,
    ):
        self._config, self.schema, self._objective = config, schema, objective
        self._exported_size = exported_size
        self._encoder_options, self._model_options, self._bm25 = encoder_options, model_options, bm25
        lengths = {field.name: field.length for field in schema.fields}
        num_texts = lengths[TEXT_LENGTHS]
        self._group_options = {
            "max_seq_length": lengths["input_ids"] // num_texts,
            "num_classes": num_classes if objective.loss == "softmax" else 0,
            "is_padded_to_longest": is_padded_to_longest,
        }
        # the record field with the teacher's similarities
        self.teacher_field = Field(TEACHER_LOGITS, (max(num_texts - 1, 1),), "float32")

    def build_model(self) -> keras.Model:
        sentence = SentenceModel(create_encoder(self._config, self._encoder_options), **self._model_options)
        check_vector_size(self._exported_size, sentence.width)
        too_large = [size for size in self._objective.vector_sizes if size >= sentence.width]
        if too_large:
            raise UserError(f"matryoshka_sizes: {too_large[0]} must be less than the vector size, {sentence.width}")
        for name, value in (self._bm25 or {}).items():
            sentence.bm25[name].assign(value)
        return SentenceGroupModel(sentence, **self._group_options)

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        name, options, _, sizes, weights = self._objective
        if name == "softmax":
            return {"softmax": softmax(outputs["logits"], batch)}
        vectors, numbers = outputs["vectors"], batch[TEXT_NUMBERS]

        def loss(vectors: Tensor) -> WeightedSum:
            return LOSSES[name](self._compared(vectors, name), batch, **options)

        losses = of_all_sizes(loss, name, vectors, sizes)
        if weights:
            losses["query_regularizer"] = flops(vectors[:, :1], numbers[:, :1], weights[0])
            losses["document_regularizer"] = flops(vectors[:, 1:], numbers[:, 1:], weights[1])
        return losses

    def _compared(self, vectors: Tensor, loss: str = "distillation") -> Tensor:
        """Scale vectors to length 1 for the losses that compare them by cosine similarity."""
        is_sparse = self._objective.regularizer_weights is not None
        is_scaled = loss != "triplet" and not (is_sparse and loss in _BY_DOT_PRODUCT)
        return normalized(vectors) if is_scaled else vectors

    def logits(self, outputs: Mapping[str, Tensor]) -> Tensor:
        return similarities(self._compared(outputs["vectors"]))

    def soft_target_loss(
        self, outputs: Mapping[str, Tensor], teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        del temperature  # that of `soft_target_options` is used
        vectors = self._compared(outputs["vectors"])
        return soft_targets(vectors, teacher_logits, batch, **self._objective.soft_target_options)

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        del batch
        return {"vectors": outputs["vectors"]}


class SentenceTextModel(TextModel):
    """A sentence model with its tokenizer; its vectors can be truncated, normalized and quantized."""

    task = "sentence_encoder"
    text_names = ("text",)
    per_position = (TOKEN_VECTORS,)

    def __init__(
        self,
        model: SentenceModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        size: int | None = None,
        normalize: bool = False,
        vector_types: Sequence[str] = (FLOAT32,),
        prompts: Prompts = NO_PROMPTS,
        query_weights: np.ndarray | None = None,
    ):
        """Keep the first `size` components of each vector; if the model ends in normalization, normalize them again.

        If pooling leaves the default prompt out, every sequence of ids must begin with it. `query_weights`, float32
        [V], are those of wordpieces of queries, for inference-free SPLADE.
        """
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        if model.is_sparse and (size or normalize or tuple(vector_types) != (FLOAT32,)):
            raise UserError("sparse vectors are exported whole, in float32, and without normalization")
        check_vector_size(size or 0, model.width)
        prefix = prompts.default
        tokenizer.check_prefix(prefix, max_seq_length)
        self.width, self.is_sparse = size or model.width, model.is_sparse
        self._vector_types = tuple(vector_types)
        if query_weights is not None:
            self._arrays = lambda: {QUERY_WEIGHTS: query_weights}
        unpooled = (
            1 + len(tokenizer.encode(prefix)) if prefix and not prompts.are_pooled else 0
        )  # positions, with [CLS]
        self._unnormalized = lambda inputs: model.after_pooling(
            model.pooled(model.encoder(inputs, training=False), inputs), normalize=False
        )
        self._pooled = lambda encoded, inputs: model.after_pooling(model.pooled(encoded, inputs, unpooled))
        if unpooled:
            self._run_model = lambda inputs: self._pooled(model.encoder(inputs, training=False), inputs)
        self._prefix, self._query_prefix = (  # with morphemes, an export reads split texts
            f"{tokenizer.split_text(prompt)} " if prompt and tokenizer.settings.morphemes else prompt
            for prompt in (prefix, prompts.by_name.get(QUERY, ""))
        )
        details = {"pooling": ",".join(model.poolings), "prefix": prefix, "prompts": dict(prompts.by_name)}
        self._details = lambda: details
        self._normalizes = normalize or (model.is_normalized and self.width < model.width)

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        config = run.config
        return cls(
            run.load(SentenceModel),
            run.bert_config,
            run.tokenizer,
            max_seq_length=config.max_seq_length,
            size=config.vector_size or None,
            vector_types=config.listed_vector_types,
            prompts=Prompts(config.prompts, config.query_prefix if config.prefix is None else config.prefix),
        )

    def numbers(self, inputs: Tensors) -> Tensors:
        """Compute the vectors of texts, [B, D], and those of the tokens, unless the vectors are sparse, in one pass."""
        if self.is_sparse:
            return self._outputs(self._run_model(inputs))
        encoded = self._run_encoder(inputs)
        of_tokens = ops.cast(encoded["sequence_output"], "float32")
        return {**self._outputs(self._pooled(encoded, inputs)), TOKEN_VECTORS: of_tokens}

    def unnormalized(self, inputs: Tensors) -> Tensor:
        """Compute the vectors of whole texts, float32 [B, D], without normalization."""
        return self._unnormalized(inputs)

    def _outputs(self, vectors: Tensor) -> Tensors:
        vectors = vectors[:, : self.width]
        if self._normalizes:
            vectors = normalized(vectors)
        outputs = {VECTORS: vectors}
        if INT8 in self._vector_types:
            outputs["int8_vectors"] = _as_int8(vectors)
        if BINARY in self._vector_types:
            outputs["binary_vectors"] = _packed_bits(vectors)
        return outputs


TEXT_MODEL = SentenceTextModel


def _as_int8(vectors: Tensor) -> Tensor:
    """Scale each vector so that its largest absolute component is 127, and round: cosine similarities stay."""
    largest = ops.max(ops.abs(vectors), axis=1, keepdims=True)
    return ops.cast(ops.round(ops.divide_no_nan(vectors, largest) * _LARGEST_INT8), "int8")


def _packed_bits(vectors: Tensor) -> Tensor:
    """Pack the signs of vectors, [B, D], into uint8 [B, ceil(D / 8)] as `numpy.packbits` does: 1 if positive."""
    bits = ops.pad(ops.cast(vectors > 0, "int32"), [[0, 0], [0, -vectors.shape[1] % 8]])
    bits = ops.reshape(bits, [-1, bits.shape[1] // 8, 8])
    return ops.cast(ops.sum(bits * np.array([128, 64, 32, 16, 8, 4, 2, 1], np.int32), axis=2), "uint8")
