"""`TextEncoder`: vectors of texts, computed from any layers of an encoder; and which of them compare texts best."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.poolings import BM25, CONCAT_LAST_FOUR, EMBED, POOLER, POOLINGS, SUM_LAST_FOUR, poolings_of
from official_bert.config.sentence_modules import MODEL, MODULES_FILE, NO_PROMPTS, QUERY, SPLADE, Prompts
from official_bert.data.feature_files import TextFeatures
from official_bert.data.text_inputs import ScoredPair, TextOrPair
from official_bert.metrics.classification import pearson, spearman
from official_bert.metrics.retrieval import BM25_B, BM25_K1, Bm25Weights, normalized
from official_bert.modeling import pooling as layer_pooling
from official_bert.modeling.encoder import BertEncoder, create_encoder
from official_bert.modeling.token_model import is_needed, model_fingerprint
from official_bert.options.groups import SentenceBatchOptions
from official_bert.serving.engine_model import Engine
from official_bert.serving.text_model import ONE_DEVICE, Computation, Devices, Tensors, keras_engine
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.sentence_encoder.head import RunHead, SentenceHead, find_head
from official_bert.tasks.sentence_encoder.reader import VECTORS
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import (
    BATCH_SIZE,
    POOLED_BATCHES,
    POOLED_BYTES,
    USUAL_LENGTH,
    JoinedSequence,
    join_texts,
    pools,
    split_windows,
    truncate_pair,
)
from official_bert.tokenization.tokenizer import Text, check_max_seq_length, paired_texts
from official_bert.training.devices import inference_options

# K: chosen layers, P: poolings, S: wordpieces, D: hidden width.


class VectorSettings(NamedTuple):
    # the K layers; 0 is the first, -1 the last, and "embeddings" the input of the first
    layers: Sequence[int | str] = (-1,)
    # "none" for the vectors of all wordpieces, or the poolings of each layer in `config.poolings`, zeros for a text
    # without words. Several give the K vectors of the first pooling, then those of the next, and so on: [P * K, D].
    # "pooler", "model" and "splade", float [V], must be the only pooling, with the last layer
    pooling: str = "none"
    max_seq_length: int = 128  # maximum number of positions per sequence
    # whether to split longer texts into overlapping windows and average the results (for "max", take the maximum)
    # instead of truncating them
    use_windows: bool = False
    dtype: str = "float32"  # "float32" or "float16"
    prompt: str | None = None  # with the pooling "model", the prefix of every text; None for the default of the model

    @property
    def poolings(self) -> Sequence[str]:
        """The poolings as a sequence; empty for "none"."""
        if self.pooling == "none":
            return ()
        return (self.pooling,) if isinstance(self.pooling, str) else tuple(self.pooling)


class _EncodedText(NamedTuple):
    input_ids: list[int]  # ids of the whole text
    windows: list[JoinedSequence]  # one sequence, or the windows of a long text
    positions: list[np.ndarray]  # for each window, the indices of its ids in `input_ids`


class TextEncoder:
    """An encoder of texts, which keeps their order and one pool of them in memory.

    It counts the texts encoded so far, their wordpieces with [CLS] and [SEP], and those that were too long.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        tokenizer: Tokenizer,
        settings: VectorSettings | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        devices: Devices = ONE_DEVICE,
        bm25: Bm25Weights | None = None,
        head: SentenceHead | None = None,
    ):
        self.encoder, self.tokenizer, self.settings = encoder, tokenizer, settings or VectorSettings()
        self.head, self._poolings, self._prompt = head, self.settings.poolings, ""
        self._unpooled = 0  # positions of the prompt that pooling leaves out
        self._uses_head = self.settings.pooling in (MODEL, SPLADE)
        if self._uses_head:
            if head is None or (self.settings.pooling == MODEL and not head.is_default):
                raise UserError(
                    f"pooling={MODEL} needs the folder of a sentence-transformers model, with {MODULES_FILE}, or of "
                    "a run of run_sentence_encoder"
                )
            if [layer % encoder.config.num_layers for layer in self.settings.layers] != [encoder.config.num_layers - 1]:
                named = f"pooling={self.settings.pooling}"
                raise UserError(f"{named} uses the last layer; leave out layers, or choose another pooling")
            self._poolings = head.model.poolings
            if self.settings.pooling == SPLADE and not head.model.is_sparse:
                raise UserError(f"the model was trained with pooling={','.join(self._poolings)}, not with {SPLADE}")
            self._prompt = head.prompts.default if self.settings.prompt is None else self.settings.prompt
            if not head.prompts.are_pooled and self._prompt:
                if self.settings.use_windows:
                    raise UserError("windows are not supported for a model that leaves the prompt out of its vectors")
                room = tokenizer.specials.room(self.settings.max_seq_length, is_pair=False)
                self._unpooled = 1 + min(len(tokenizer.encode(self._prompt)), room)  # with [CLS]
        self._batch_size, self._devices, self._bm25 = batch_size, devices, bm25
        self._specials = tokenizer.specials
        self._engines: dict[tuple, Engine] = {}
        self.num_texts = self.num_wordpieces = self.num_long = 0

    def with_settings(
        self, settings: VectorSettings, *, batch_size: int | None = None, bm25: Bm25Weights | None = None
    ) -> "TextEncoder":
        """Return the same encoder on the same devices with other settings and its counts at 0."""
        options = {"batch_size": batch_size or self._batch_size, "devices": self._devices, "bm25": bm25}
        other = TextEncoder(self.encoder, self.tokenizer, settings, head=self.head, **options)
        if bm25 is None:  # both share the compiled functions
            other._engines = self._engines
        return other

    @property
    def width(self) -> int:
        return self.head.model.width if self._uses_head else self.encoder.config.hidden_size

    @property
    def is_sparse(self) -> bool:
        """True if vectors have a weight for each wordpiece, and are compared by their dot product."""
        return self._uses_head and self.head.model.is_sparse

    @property
    def other_similarity(self) -> str | None:
        """The similarity of a dense model in which cosines do not rank as they should; None for others."""
        return self.head.other_similarity if self._uses_head and not self.is_sparse else None

    @property
    def prompts(self) -> Prompts:
        return self.head.prompts if self._uses_head else NO_PROMPTS

    @property
    def uses_bm25(self) -> bool:
        return self.settings.pooling == BM25

    def bm25_weights(self, texts: Iterable[TextOrPair]) -> Bm25Weights:
        """Count the wordpieces of texts, truncated and without [CLS] and [SEP]."""

        def ids_of(text: TextOrPair) -> list[int]:
            room = self.settings.max_seq_length - (3 if text.text_b else 2)
            return [piece for part in text if part for piece in self.tokenizer.encode(part)][:room]

        return Bm25Weights.fit(map(ids_of, texts), len(self.tokenizer))

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that affects the vectors, by its name in messages."""
        config, settings = self.encoder.config, self.settings
        head = {MODULES_FILE: self.head.fingerprint} if self._uses_head else {}
        return {
            "weights of the model": model_fingerprint(self.encoder),
            "model configuration": config.to_json_string(),
            **self.tokenizer.identity,
            **head,
            **({"prefix": self._prompt} if self._prompt else {}),
            "layers": sorted(layer % config.num_layers for layer in settings.layers),
            "pooling": [settings.pooling, BM25_K1, BM25_B] if self.uses_bm25 else [settings.pooling],
            "max_seq_length": settings.max_seq_length,
        }

    def embed(
        self,
        texts: Iterable[Text | tuple[Text, Text]],
        *,
        pooling: str | None,
        max_seq_length: int | None,
        batch_size: int,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Compute one vector per text, ignoring `settings`; see `Predictor.embed`."""
        pooling = pooling or (MODEL if self.head and self.head.is_default else "mean")
        if pooling not in poolings_of(EMBED):
            raise UserError(f"pooling={pooling!r} is unknown; choose one of {', '.join(poolings_of(EMBED))}")
        layer_pooling.num_vectors(pooling, self.encoder.config.num_layers, parameter="pooling")
        limit = self.encoder.max_length
        if max_seq_length is None:
            max_seq_length = min(limit, (self.head and self.head.max_seq_length) or limit)
        check_max_seq_length(max_seq_length)
        if max_seq_length > limit:
            raise UserError(f"max_seq_length={max_seq_length} exceeds the {limit} positions of the model")
        row, prompts = POOLINGS[pooling], self.head.prompts.by_name if pooling == MODEL and self.head else {}
        if prompt_name is not None and prompt_name not in prompts:
            known = f"with pooling={pooling}, the prompts are {format_names(prompts) if prompts else 'none'}"
            raise UserError(f"prompt_name={prompt_name!r:.80} is unknown; {known}")
        settings = VectorSettings(row.layers, row.of_layer or pooling, max_seq_length, prompt=prompts.get(prompt_name))
        encoder = self.with_settings(settings, batch_size=batch_size)
        pairs = (TextOrPair(*pair) for pair in paired_texts(texts, None))
        shape = (-1, len(encoder.settings.layers), encoder.width)  # [N, K, D]
        features = encoder.features(pairs, is_query=prompt_name == QUERY)
        vectors = np.array([text.vectors for text in features], np.float32).reshape(shape)
        return vectors.sum(axis=1) if pooling == SUM_LAST_FOUR else np.hstack([*vectors.swapaxes(0, 1)])

    def features(
        self, texts: Iterable[TextOrPair], first_index: int = 0, *, is_query: bool = False
    ) -> Iterator[TextFeatures]:
        """Compute the vectors of texts; a whole pool is read before its first result.

        Inference-free SPLADE computes those of queries from a table, without the encoder.

        Yields:
          The features of each text: vectors float [S, K, D], or pooled [P * K, D]; D is `width`.
        """
        indices = itertools.count(first_index)
        if is_query and self._uses_head and self.head.query_weights is not None:
            yield from map(self._of_query, texts, indices)
            return
        num_of_position = len(self.settings.layers) * max(1, len(self._poolings))

        def sizes(text: _EncodedText) -> tuple[int, int]:
            num_positions = sum(1 if self._poolings else len(window.input_ids) for window in text.windows)
            return 1, num_positions * num_of_position * self.width * 4  # bytes

        most_rows = rows_of_batch(self.encoder.config, self._batch_size, self.width if self.is_sparse else 0)
        limits = POOLED_BATCHES * self._batch_size, POOLED_BYTES
        for pool in pools(map(self._encoded, texts), sizes, limits):
            sequences = [window.inputs for text in pool for window in text.windows]
            vectors = (row[VECTORS] for row in self._engine().computed(sequences, most_rows))
            of_texts = (self._joined(text, list(itertools.islice(vectors, len(text.windows)))) for text in pool)
            if self._uses_head and self.settings.use_windows:
                pooled = np.stack(list(of_texts)).reshape(len(pool), -1)
                of_texts = np.asarray(self.head.model.after_pooling(pooled))[:, np.newaxis]
            for text, of_text in zip(pool, of_texts, strict=True):
                self.num_texts += 1
                self.num_wordpieces += len(text.input_ids)
                yield TextFeatures(next(indices), text.input_ids, of_text.astype(self.settings.dtype, copy=False))

    def _of_query(self, text: TextOrPair, index: int) -> TextFeatures:
        """Return the static weights of the wordpieces of a query, without [CLS] and [SEP], as sentence-transformers."""
        parts = self._prompt + text.text_a, text.text_b or ""
        input_ids = [piece for part in parts for piece in self.tokenizer.encode(part)]
        kept, weights = input_ids[: self.settings.max_seq_length], self.head.query_weights
        self.num_texts, self.num_wordpieces = self.num_texts + 1, self.num_wordpieces + len(kept)
        self.num_long += len(kept) < len(input_ids)
        vector = np.zeros((1, len(weights)), self.settings.dtype)
        vector[0, kept] = weights[kept]
        return TextFeatures(index, kept, vector)

    def _engine(self) -> Engine:
        settings = self.settings
        key = tuple(settings.layers), tuple(settings.poolings), settings.dtype, settings.use_windows, self._unpooled
        if key not in self._engines:
            variables = (self.head.model if self._uses_head else self.encoder).variables
            computation = Computation(
                lambda batch: {VECTORS: self._compute(batch)}, variables, self.encoder.config.max_length
            )
            self._engines[key] = keras_engine(computation, self._devices)
        return self._engines[key]

    def _compute(self, batch: Tensors) -> Any:
        """Compute the vectors of a batch: float [B, P * K, D], or without pooling [B, S, K, D]."""
        if self.settings.pooling == POOLER:
            return ops.cast(self.encoder.pool(**batch)[:, None], self.settings.dtype)
        encoded = self.encoder(batch)
        if self._uses_head:
            pooled = self.head.model.pooled(encoded, batch, self._unpooled)  # [B, P * D]
            if not self.settings.use_windows:
                return self.head.model.after_pooling(pooled)[:, None]
            width = self.width if self.is_sparse else self.encoder.config.hidden_size
            return ops.reshape(pooled, [ops.shape(pooled)[0], -1, width])
        layers = [
            encoded["embedding_output"] if layer == layer_pooling.EMBEDDINGS else encoded["encoder_layers"][layer]
            for layer in self.settings.layers
        ]
        input_ids, is_real = batch["input_ids"], batch["input_mask"]
        is_word = is_real
        for special in (self._specials.cls_id, self._specials.sep_id):
            is_word *= ops.cast(input_ids != special, "int32")
        is_weighted = BM25 in self._poolings
        weights = layer_pooling.bm25_weights(input_ids, is_word, *self._bm25) if is_weighted else None

        def pooled(pooling: str, layer: Any) -> Any:
            if pooling == BM25:
                return layer_pooling.weighted_mean_over_positions(layer, weights)
            name = pooling.removesuffix("_no_special")
            return layer_pooling.OVER_POSITIONS[name](layer, is_real if name == pooling else is_word)

        vectors = [pooled(pooling, layer) for pooling in self._poolings for layer in layers] or layers
        return ops.stack([ops.cast(vector, self.settings.dtype) for vector in vectors], axis=-2)

    def _encoded(self, text: TextOrPair) -> _EncodedText:
        first = self.tokenizer.encode(self._prompt + text.text_a)
        second = self.tokenizer.encode(text.text_b) if text.text_b else []
        max_tokens = self._specials.room(self.settings.max_seq_length, is_pair=bool(second))
        if len(first) + len(second) > max_tokens:
            self.num_long += 1
            if self.settings.use_windows:
                return self._windowed(first, second, max_tokens)
            first, second = truncate_pair(first, second, max_tokens)
        whole = join_texts(first, second, self._specials)
        return _EncodedText(whole.input_ids, [whole], [np.arange(len(whole.input_ids))])

    def _windowed(self, first: list[int], second: list[int], max_tokens: int) -> _EncodedText:
        parts = split_windows(len(first), len(second), max_tokens)
        # Each window contains the same part of the shorter text.
        first, second = first[: max(a.stop for a, _ in parts)], second[: max(b.stop for _, b in parts)]
        whole = join_texts(first, second, self._specials)
        windows, positions = [], []
        for a, b in parts:
            windows.append(join_texts(first[a.start : a.stop], second[b.start : b.stop], self._specials))
            places = [0, *(1 + place for place in a), 1 + len(first)]
            if second:
                offset = len(first) + self._specials.num_before_second
                places += [*range(2 + len(first), offset), *(offset + place for place in b), offset + len(second)]
            positions.append(np.array(places))
        return _EncodedText(whole.input_ids, windows, positions)

    def _joined(self, text: _EncodedText, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Combine the vectors of a text's windows, without padding."""
        if not self._poolings:
            vectors = [rows[: len(places)] for rows, places in zip(vectors, text.positions, strict=True)]
        if len(vectors) == 1:
            return vectors[0]
        if self._poolings:
            num_layers = self.encoder.config.num_layers
            sizes = [layer_pooling.num_vectors(pooling, num_layers) for pooling in self._poolings]
            ends = np.cumsum(sizes)[:-1] * len(self.settings.layers)
            parts = np.split(np.stack(vectors), ends, axis=1)  # P of [windows, K, D]
            return np.concatenate(
                [
                    np.max(part, axis=0)
                    if pooling.startswith(("max", SPLADE))
                    else np.mean(part, axis=0, dtype=np.float32).astype(part.dtype)
                    for pooling, part in zip(self._poolings, parts, strict=True)
                ]
            )
        total = np.zeros((len(text.input_ids), *vectors[0].shape[1:]), np.float32)
        count = np.zeros((len(text.input_ids), 1, 1), np.float32)
        for rows, places in zip(vectors, text.positions, strict=True):
            total[places] += rows
            count[places] += 1
        return (total / count).astype(self.settings.dtype)


def load_text_encoder(
    options: SentenceBatchOptions,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    settings: VectorSettings,
    *,
    use_one_hot_embeddings: bool = False,
) -> TextEncoder:
    bert_config.check_layers(settings.layers, options.bert_config_file)
    devices = devices_of(options)
    with devices.strategy.scope():
        encoder = create_encoder(bert_config, inference_options(options, use_one_hot_embeddings=use_one_hot_embeddings))
    report = load(open_checkpoint(options.init_checkpoint, "init_checkpoint"), encoder.weights, required=is_needed)
    report.log(is_trained_next=settings.pooling != POOLER)  # the checkpoint may have no pooler
    head = find_head(options.init_checkpoint, encoder)
    if isinstance(head, RunHead) and settings.pooling != MODEL:
        head.warn_of_other_vectors(settings.poolings)
    return TextEncoder(encoder, tokenizer, settings, batch_size=options.batch_size, devices=devices, head=head)


def rows_of_batch(config: BertConfig, batch_size: int, num_outputs: int) -> Callable[[int], int]:
    """Return the number of sequences to compute together, by their length, for a number of usual ones.

    Args:
      num_outputs: per sequence, if they may be more than those of a layer.
    """

    def most_rows(length: int) -> int:
        return max(min(batch_size * USUAL_LENGTH // length, config.most_sequences(length, num_outputs)), 1)

    return most_rows


def devices_of(options: SentenceBatchOptions) -> Devices:
    """Return the devices of the flags; TPUs need batches of one shape."""
    from official_bert.training.tensorflow_devices import create_strategy

    fixed_shape = (options.batch_size, options.max_seq_length) if options.use_tpu else None
    return Devices(create_strategy(options, allows_workers=False), fixed_shape)


class LayerScore(NamedTuple):
    """Correlations of the cosine similarities of one layer, or several, and pooling."""

    # the layer, from 0; "embeddings", the input of the first; layers whose vectors are averaged, as in "-1,-2";
    # or "concat_last_four"
    layer: int | str
    pooling: str  # see `VectorSettings`
    spearman: float  # Spearman's correlation
    pearson: float  # Pearson's correlation

    @property
    def is_flag(self) -> bool:
        """True if the layer is a value of the flag `layers`."""
        return self.layer not in (layer_pooling.EMBEDDINGS, CONCAT_LAST_FOUR)


def compare_layers(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, poolings: Sequence[str], report: Callable[[int], None]
) -> tuple[list[LayerScore], int]:
    """Compare the vectors of all layers and combinations of layers with each of some poolings."""
    num_layers = encoder.encoder.config.num_layers
    layers = [layer_pooling.EMBEDDINGS, *range(num_layers)]
    settings = encoder.settings._replace(layers=layers, pooling=poolings)
    weights = encoder.bm25_weights(text for pair in pairs for text in pair.texts)
    encoder = encoder.with_settings(settings, bm25=weights)
    sums = {",".join(map(str, range(num_layers))): num_layers}
    if num_layers > 4:
        sums = {"-1,-2,-3,-4": 4, **sums}
    has_four = num_layers >= 4

    def kinds(vectors: np.ndarray) -> list[np.ndarray]:
        """Return the vectors of each layer and combination, float32 [P, D] each, or [P, 4 * D]."""
        by_layer = vectors.reshape(len(poolings), len(layers), -1)  # [P, L + 1, D]
        summed = [by_layer[:, -count:].sum(axis=1) for count in sums.values()]
        joined = [by_layer[:, -4:].reshape(len(poolings), -1)] if has_four else []
        return [*by_layer.swapaxes(0, 1), *summed, *joined]

    names = itertools.product([*layers, *sums, *([CONCAT_LAST_FOUR] if has_four else [])], poolings)
    table = zip(names, correlations(pairs, encoder, report, kinds), strict=True)
    # [CLS] has the same embedding in each text.
    scores = [LayerScore(*name, *scores) for name, scores in table if name != (layer_pooling.EMBEDDINGS, "cls")]
    return scores, encoder.num_long


def correlations(
    pairs: Sequence[ScoredPair],
    encoder: TextEncoder,
    report: Callable[[int], None],
    kinds: Callable[[np.ndarray], Sequence[np.ndarray]] = lambda vectors: [vectors],
) -> list[tuple[float, float]]:
    """Correlate the cosine similarities of pairs with their scores, for each kind of vector.

    Args:
      kinds: converts them, float [K, D], to arrays with a vector per row; by default, the vectors are used as they are.
    """
    cosines = []
    features = encoder.features(text for pair in pairs for text in pair.texts)
    for number, texts in enumerate(zip(features, features, strict=True), start=1):
        of_pair = zip(*(map(normalized, kinds(text.vectors)) for text in texts), strict=True)
        cosines.append(np.concatenate([(first * second).sum(axis=1) for first, second in of_pair]))
        report(number)
    scores = [pair.score for pair in pairs]
    return [(spearman(scores, column), pearson(scores, column)) for column in np.stack(cosines, axis=1)]
