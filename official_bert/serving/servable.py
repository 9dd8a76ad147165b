"""Base of all exported models: signatures and validation of requests."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.serving.batching import LENGTH_OF_ATTENTION
from official_bert.serving.export_stack import ExportStack, can_be_divided
from official_bert.serving.signatures import (
    EXAMPLES,
    MOST_CELLS,
    SERVING_DEFAULT,
    SERVING_INT64,
    SIGNATURES,
    TEXT,
    TOKENIZE,
)
from official_bert.serving.text_model import IDS_SCHEMA, Tensors, TextModel
from official_bert.tokenization import Tokenizer, vocab
from official_bert.tokenization.graph_operations import in_batches
from official_bert.tokenization.sequences import MOST_BYTES

# B: examples, W: windows per example, R: windows of all examples, S: positions.

MOST_POSITIONS = 1 << 14  # computed together, unless one row has more


class Servable(TextModel, tf.Module):
    """A `TextModel` that reads texts in TensorFlow's graph; subclasses define the texts and predictions."""

    def __init__(self, model: keras.Model, config: BertConfig, tokenizer: Tokenizer, *, max_seq_length: int):
        """Combine a model with its tokenizer; a sequence has `max_seq_length` positions, also in `examples`.

        The model's current weights are used when signatures are called or saved; after `use_export_stack`, its layers'
        weights are those at the time of that call.
        """
        tf.Module.__init__(self, name=self.task)
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        self.text_settings = tokenizer.settings
        ids = dict.fromkeys(IDS_SCHEMA.names, tf.TensorSpec([None, None], tf.int32))
        predict = tf.function(self.predict, input_signature=[ids], autograph=False)  # traced once for all signatures
        # Wrapped in lambdas: saving would trace and save each function attribute again, even if no signature calls it.
        # Signatures are saved with everything they call, except variables and tables.
        self._predict = lambda inputs: predict(inputs)
        self._variables_in_use = lambda: predict.get_concrete_function().variables
        self._output_specs = lambda: predict.get_concrete_function().structured_outputs
        # Attributes of a module are saved with it.
        self._variables: Sequence[tf.Variable] = ()
        self._tables: Sequence[tf.Module] = ()
        self.use_tokenizer(tokenizer)

    def use_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Tokenize texts by another tokenizer of the vocabulary in signatures created afterwards."""

        @functools.cache
        def graph_tokenizer() -> Any:  # takes seconds, and only signatures need it
            with tf.init_scope():
                return tokenizer.in_graph()

        self._graph_tokenizer = lambda: graph_tokenizer()

    def tokenize(self, **texts: tf.Tensor) -> Tensors:
        """Convert texts, string [B], to input_ids, input_mask and segment_ids, int32 [B, ..., S]."""
        raise NotImplementedError

    def predict(self, inputs: Tensors) -> Tensors:
        """Convert input_ids, input_mask and segment_ids, int32 [B, S], to predictions, each [B, ...]."""
        return self.numbers(inputs)

    def answer(self, **texts: tf.Tensor) -> Tensors:
        """Convert texts, string [B], to predictions, each [B, ...]."""
        return self._predict(self.tokenize(**texts))

    def use_export_stack(self, num_parts: int) -> None:
        """Use an `ExportStack` of so many parts per layer in signatures created afterwards, if its layers allow it."""
        encoder = self._encoder()
        if not can_be_divided(encoder.transformer):
            return
        stack = ExportStack(encoder.transformer, num_parts)

        def in_parts(run: Callable[[Tensors], Any]) -> Callable[[Tensors], Any]:
            def run_in_parts(inputs: Tensors) -> Any:
                with stack.replacing_layers(encoder):
                    return run(inputs)

            return run_in_parts

        self._run_model, self._run_encoder = in_parts(self._run_model), in_parts(self._run_encoder)

    def sample_texts(self, num_wordpieces: int) -> Sequence[str]:
        """Create warm-up texts, one per name in `text_names`, of about `num_wordpieces` wordpieces in total."""
        words = [piece for piece in self.vocabulary.token_to_id if piece.isalpha()] or [vocab.UNK]
        num_words = max(num_wordpieces // len(self.text_names), 1)
        text = " ".join(words[number % len(words)] for number in range(num_words))
        return [text] * len(self.text_names)

    def flat_ids(self, tokenized: Tensors) -> Tensors:
        """Reshape the output of `tokenize` to the input of `predict`, int32 [B, S]."""
        return tokenized

    def more_warmup_requests(self, texts: Mapping[str, tf.Tensor]) -> Iterable[tuple[str, Tensors]]:
        """Return requests to model-specific signatures, created from texts: name and inputs."""
        del texts
        return ()

    def signature(self, name: str) -> Callable[..., Tensors]:
        """Return the function to save under a name: a concrete function from named tensors to named tensors."""
        texts = tf.TensorSpec([None], tf.string)
        int32, int64 = (tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.int64))
        function, inputs, specification = {
            SERVING_DEFAULT: (self._predict_checked, IDS_SCHEMA.names, int32),
            SERVING_INT64: (self._predict_checked, IDS_SCHEMA.names, int64),
            EXAMPLES: (self._predict_examples, ["examples"], texts),
            TEXT: (self.answer, self.text_names, texts),
            TOKENIZE: (self.tokenize, self.text_names, texts),
        }[name]
        return traced(function, inputs, specification)

    def numeric_signature(self) -> tuple[Callable[..., Tensors], tf.Module]:
        """Trace `numbers` for one example; return the function, and an object that holds only the weights it needs."""
        function = tf.function(lambda **inputs: self.numbers(inputs), autograph=False)
        function = function.get_concrete_function(**_specs_of_ids(1))
        weights = tf.Module()
        weights.variables_in_use = function.variables
        return function, weights

    def function_of_weights(self) -> tuple[Callable[..., Tensors], Mapping[str, keras.Variable]]:
        """Trace `numbers` as a function of ids and of weights; return it and the weights by their arguments' names."""
        weights = {f"weight_{number}": variable for number, variable in enumerate(self._weights())}
        specs = {name: tf.TensorSpec(value.shape, value.dtype, name=name) for name, value in weights.items()}

        def numbers(**inputs: tf.Tensor) -> Tensors:
            with keras.StatelessScope([(variable, inputs.pop(name)) for name, variable in weights.items()]):
                return self.numbers(inputs)

        function = tf.function(numbers, autograph=False)
        return function.get_concrete_function(**_specs_of_ids(None), **specs), weights

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """Return all functions to save, by name; their dependencies are saved with the module."""
        self._variables, self._tables = self._variables_in_use(), self._graph_tokenizer().submodules
        names = [name for name in SIGNATURES if self.reads_texts or name not in (TEXT, TOKENIZE)]
        signatures = {name: self.signature(name) for name in names}
        called = signatures[TEXT if self.reads_texts else SERVING_DEFAULT]
        inputs = called.structured_input_signature[1]
        self.serve = tf.function(lambda inputs: called(**inputs), input_signature=[inputs])  # for Keras's TFSMLayer
        return signatures

    @property
    def reads_texts(self) -> bool:
        """True if its export can read texts, not only ids."""
        return self._graph_tokenizer().is_portable

    def _predict_checked(self, **inputs: tf.Tensor) -> Tensors:
        return self._predict_table(self._checked(inputs))

    def _predict_table(self, inputs: Tensors) -> Tensors:
        """Predict for a response: values per position are limited in number, and computed for some rows at a time."""
        specs = self._output_specs()
        per_position = [spec.shape[2:].num_elements() for spec in specs.values() if None in spec.shape[1:].as_list()]
        if not per_position:
            return self._predict(inputs)
        num_rows, length = tf.unstack(tf.shape(inputs["input_ids"], tf.int64))
        with tf.control_dependencies([self._check_table_of_positions(num_rows, length, max(per_position))]):
            return self.predict_in_batches({name: tf.identity(values) for name, values in inputs.items()}, specs)

    def _check_table_of_positions(self, num_rows: tf.Tensor, length: tf.Tensor, width: int) -> tf.Tensor:
        """Fail if values of a width for each position, int64 scalars, would be too many for a response."""
        return check_table_size(num_rows, length[tf.newaxis] * width, largest_row=self.most_positions * width)

    def predict_in_batches(self, ids: Tensors, specs: Mapping[str, tf.TensorSpec]) -> Tensors:
        """Predict some rows of ids, int32 [R, S], at a time, so that many need no more memory than a few.

        The results are the outputs of `predict` in `specs`, each [R, ...].
        """
        num_rows, length = tf.unstack(tf.shape(ids["input_ids"]))

        def predict(rows: slice) -> Tensors:
            return self._predict({name: values[rows] for name, values in ids.items()})

        return in_batches(predict, num_rows, rows_at_once(length), specs)

    def _checked(self, inputs: Tensors) -> Tensors:
        with tf.control_dependencies(self._checks(inputs)):  # before int64 is truncated to int32
            inputs = {name: tf.cast(tf.identity(values), tf.int32) for name, values in inputs.items()}
        return without_server_padding(inputs, self._specials.cls_id)

    def _predict_examples(self, examples: tf.Tensor) -> Tensors:
        return self._predict_table(self.example_schema.decode(examples))

    def _checks(self, inputs: Tensors) -> list[tf.Operation]:
        """Return checks that fail for invalid requests; without them, a GPU would return arbitrary numbers."""
        length, limits = tf.shape(inputs["input_ids"])[1], {field.name: field for field in self.example_schema.fields}
        checks = [
            tf.debugging.Assert(
                (length > 0) & (length <= self.most_positions),
                [f"input_ids must have from 1 to {self.most_positions} positions, but has", length],
            )
        ]
        for name, values in inputs.items():
            checks.append(
                tf.debugging.Assert(
                    tf.reduce_all((values >= 0) & (values < limits[name].below)),
                    [
                        f"{name} must be from 0 to {limits[name].below - 1}, but is from",
                        tf.reduce_min(values),
                        "to",
                        tf.reduce_max(values),
                    ],
                )
            )
            checks.append(
                tf.debugging.Assert(
                    tf.reduce_all(tf.equal(tf.shape(values), tf.shape(inputs["input_ids"]))),
                    [f"{name} must have the shape of input_ids, but has", tf.shape(values)],
                )
            )
        return checks


class WindowedServable(Servable):
    """A model that reads each example in as many windows as it needs; subclasses split the texts."""

    def cut(self, **texts: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        """Convert texts, string [B], to windows: the example of each, int64 [R], and ids, int32 [R, S]."""
        raise NotImplementedError

    def tokenize(self, **texts: tf.Tensor) -> Tensors:
        """Convert texts, string [B], to model inputs, int32 [B, maximum W, S], padded with 0.

        The last texts have at most `MOST_BYTES` in total.
        """
        long = self.text_names[-1]
        num_examples = tf.size(texts[long], tf.int64)
        with tf.device("CPU:0"):
            example, ids = self.cut(**{**texts, long: check_total_size(texts[long], long)})
            num_windows = tf.math.bincount(tf.cast(example, tf.int32), dtype=tf.int64)
            num_cells = num_windows * tf.shape(ids["input_ids"], tf.int64)[1]
            with tf.control_dependencies([check_table_size(num_examples, num_cells)]):
                return {
                    name: tf.RaggedTensor.from_value_rowids(
                        tf.identity(values), example, num_examples, validate=False
                    ).to_tensor()
                    for name, values in ids.items()
                }

    def flat_ids(self, tokenized: Tensors) -> Tensors:
        """Return all windows of `tokenize` except missing ones: int32 [R, S]."""
        flat = {name: tf.reshape(values, [-1, values.shape[-1]]) for name, values in tokenized.items()}
        is_window = flat["input_mask"][:, 0] == 1
        return {name: tf.boolean_mask(values, is_window) for name, values in flat.items()}


def rows_at_once(length: tf.Tensor) -> tf.Tensor:
    """Return how many rows of a length, int32 scalars, are computed together."""
    work_of_row = length * tf.maximum(length, LENGTH_OF_ATTENTION) // LENGTH_OF_ATTENTION
    return tf.maximum(MOST_POSITIONS // tf.maximum(work_of_row, 1), 1)


def traced(
    function: Callable[..., Tensors],
    inputs: Iterable[str],
    specification: tf.TensorSpec,
    dimensions: Sequence[str] = ("examples", "positions"),
) -> Callable[..., Tensors]:
    """Trace a function of named tensors of one type, whose dimensions it checks first."""

    def checked(**values: tf.Tensor) -> Tensors:
        return function(**check_ranks(values, *dimensions[: specification.shape.rank]))

    return tf.function(checked, autograph=False).get_concrete_function(**dict.fromkeys(inputs, specification))


def without_server_padding(inputs: Mapping[str, tf.Tensor], cls_id: int) -> Tensors:
    """Mask the positions that TensorFlow Serving adds to shorter requests of a batch.

    With `pad_variable_length_inputs`, it pads each tensor with the tensor's own first element: input_ids with [CLS],
    input_mask with 1. So `[CLS] a [SEP]` becomes `[CLS] a [SEP] [CLS] [CLS]`, all unmasked. No text ends in [CLS], so a
    trailing run of [CLS] is padding, except at a row's first position.
    """
    ids = inputs["input_ids"]
    is_cls = tf.cast(ids == cls_id, tf.int32)
    is_at_end = tf.math.cumprod(is_cls, axis=1, reverse=True)
    is_at_end *= tf.cast(tf.range(tf.shape(ids)[1]) > 0, tf.int32)
    return {name: values * (1 - is_at_end) for name, values in inputs.items()}


def check_ranks(inputs: Tensors, *names: str) -> Tensors:
    """Fail with a clear message for tensors whose rank differs from the signature's, or lists of different lengths.

    Neither the server nor Python checks requests against the signature's shapes, and the graph relies on them: a
    tensor's rank is fixed when traced, unless a placeholder hides it.
    """
    number = len(names)
    checks = []
    for name, values in inputs.items():
        shape = tf.shape(tf.raw_ops.PlaceholderWithDefault(input=values, shape=None))
        dimensions = f"{number} dimension{'' if number == 1 else 's'}, {' and '.join(names)}"
        message = f"{name} must have {dimensions}, but has the shape"
        checks.append(tf.debugging.Assert(tf.equal(tf.size(shape), number), [message, shape]))
    if number == 1:
        sizes = tf.stack([tf.size(values) for values in inputs.values()])
        message = f"{' and '.join(inputs)} must have the same number of {names[0]}, but have"
        checks.append(tf.debugging.Assert(tf.reduce_all(sizes == sizes[0]), [message, sizes]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(values) for name, values in inputs.items()}


def check_text_size(texts: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Return texts, string [B], or their words, [B, words], and their bytes, int32 [B]; fail above the limit."""
    sizes = tf.strings.length(texts)
    if texts.shape.rank == 2:
        sizes = tf.reduce_sum(sizes, axis=1)
    message = f"{name} must have at most {MOST_BYTES} bytes per example, but one has"
    check = tf.debugging.Assert(tf.reduce_all(sizes <= MOST_BYTES), [message, tf.reduce_max(sizes)])
    with tf.control_dependencies([check]):
        return tf.identity(texts), tf.identity(sizes)


def check_total_size(texts: tf.Tensor, name: str) -> tf.Tensor:
    """Fail if texts, string [B], exceed the total size limit; return the texts."""
    total = tf.reduce_sum(tf.cast(tf.strings.length(texts), tf.int64))
    message = f"{name} must have at most {MOST_BYTES} bytes in total here, but has"
    with tf.control_dependencies([tf.debugging.Assert(total <= MOST_BYTES, [message, total])]):
        return tf.identity(texts)


def check_table_size(num_rows: tf.Tensor, lengths: tf.Tensor, largest_row: int = 0) -> tf.Tensor:
    """Fail if padding rows of these lengths, int64 [rows], would create a table with too many cells.

    A table of one row always fits, up to the length `largest_row`.
    """
    longest, most = tf.reduce_max(tf.concat([lengths, [0]], axis=0)), max(MOST_CELLS, largest_row)
    check = tf.debugging.Assert(
        num_rows * longest <= most,
        [
            f"each table of the response is limited to {most} cells (examples times the length of the longest); "
            "send fewer examples per request; the number of cells would be",
            num_rows * longest,
        ],
    )
    with tf.control_dependencies([check]):
        return tf.identity(lengths)


def _specs_of_ids(num_examples: int | None) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec([num_examples, None], tf.int32, name=name) for name in IDS_SCHEMA.names}
