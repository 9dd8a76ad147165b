"""`TextModel`: a trained model with its tokenizer; and the engines of Keras, which compute it in this process."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from typing_extensions import Self

from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.config.bert_config import ENCODER_INPUTS, BertConfig
from official_bert.data.batches import padded_lengths
from official_bert.data.schema import ENCODER_FIELDS, RecordSchema
from official_bert.modeling.encoder import BertEncoder, create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.serving.engine_model import Engine
from official_bert.serving.signatures import Arrays
from official_bert.serving.versions import LIMITS
from official_bert.tokenization import Tokenizer

IDS_SCHEMA = RecordSchema(*ENCODER_FIELDS)
Tensors = dict[str, Any]  # of Keras's backend, by name


class TrainedModel(NamedTuple):
    """A trained model, of which the classes of its task make a `TextModel` or a `Servable`."""

    config: Any  # the flags of the task's command
    bert_config: BertConfig
    tokenizer: Tokenizer
    checkpoint: str
    encoder_options: EncoderOptions = UNPADDED

    def load(self, model_class: Callable[..., Any], **options: Any) -> Any:
        """Create the model of the flags, with further options, and load its weights."""
        encoder = create_encoder(self.bert_config, self.encoder_options)
        model = model_class(encoder, **self.config.model_options, **options)
        load(open_checkpoint(self.checkpoint, "checkpoint"), model.weights)
        return model


class TextModel:
    """A trained model and its tokenizer; the class of a task is `TEXT_MODEL` of its module `task`."""

    task: str  # a key of the task registry
    text_names: tuple[str, ...]  # names of an example's texts
    per_position: tuple[str, ...] = ()  # the outputs of `numbers` with a value for each position, [B, S, ...]

    def __init__(self, model: keras.Model, config: BertConfig, tokenizer: Tokenizer, *, max_seq_length: int):
        """Combine a model with its tokenizer; a sequence has at most `max_seq_length` positions."""
        config.check_vocabulary(tokenizer.vocabulary, "the model")
        self.max_seq_length = max_seq_length
        self.bert_config, self.tokenizer, self.vocabulary = config, tokenizer, tokenizer.vocabulary
        self._specials = tokenizer.specials
        # Wrapped in lambdas, since attributes of a `Servable` are saved with it.
        self._run_model = lambda inputs: model(inputs, training=False)
        self._run_encoder = lambda inputs: model.encoder(inputs, training=False)
        self._encoder = lambda: model.encoder
        self._weights = lambda: model.variables
        self._details = self._arrays = dict

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        """Load the model of a run."""
        raise NotImplementedError

    @property
    def details(self) -> Mapping[str, Any]:
        """Further values for the description of an export, as JSON: those of the task's reader."""
        return self._details()

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Arrays to write beside the vocabulary of an export, by file name."""
        return self._arrays()

    @property
    def encoder(self) -> BertEncoder:
        return self._encoder()

    @property
    def variables_of_model(self) -> list[keras.Variable]:
        return self._weights()

    @property
    def most_positions(self) -> int:
        """Maximum number of positions that the model reads."""
        return self.bert_config.max_length

    @property
    def num_example_positions(self) -> int:
        """Maximum number of positions of an example: those of all its windows that are read together."""
        return self.max_seq_length

    @property
    def example_schema(self) -> RecordSchema:
        """The inputs of the signature `examples`: training records without labels."""
        sizes = {"V": self.bert_config.vocab_size, "T": self.bert_config.num_segments}
        return IDS_SCHEMA.sized(S=self.num_example_positions, **sizes)

    @property
    def described(self) -> dict[str, Any]:
        """The description of an export."""
        return {
            "task": self.task,
            "max_seq_length": self.max_seq_length,
            "text_names": self.text_names,
            **self.tokenizer.settings.recorded,
            **self.details,
            LIMITS: {field.name: field.below for field in self.example_schema.fields},
            "most_positions": self.most_positions,
        }

    def prepared(self, ids: Arrays) -> Arrays:
        """Add to input_ids, input_mask and segment_ids, int32 [B, S], what `numbers` reads besides, [B, ...]."""
        return ids

    def numbers(self, inputs: Tensors) -> Tensors:
        """Compute the numbers of the predictions, each [B, ...], from prepared ids."""
        raise NotImplementedError

    def engine(self) -> Engine:
        """Return the engine that computes `numbers`."""
        computation = Computation(self.numbers, self.variables_of_model, self.most_positions, self.prepared)
        return keras_engine(computation._replace(pad_id=self._specials.pad_id, per_position=self.per_position))


class Computation(NamedTuple):
    """A function of the tensors of Keras's backend, and what its engines know of it."""

    compute: Callable[[Tensors], Tensors]  # from prepared ids to outputs, [B, ...]
    variables: Sequence[keras.Variable]  # those that it uses
    most_positions: int
    prepare: Callable[[Arrays], Arrays] = dict  # from ids to what the function reads
    pad_id: int = 0
    per_position: Sequence[str] = ()  # the outputs of which those beyond the positions of ids are cut off


class Devices(NamedTuple):
    strategy: Any = None  # of TensorFlow, by default the current one
    fixed_shape: tuple[int, int] | None = None  # rows and positions of all batches


ONE_DEVICE = Devices()


def keras_engine(computation: Computation, devices: Devices = ONE_DEVICE) -> Engine:
    if keras.backend.backend() == "tensorflow":
        return TensorFlowEngine(computation, devices)
    return JaxEngine(computation)


class TensorFlowEngine(Engine):
    """A graph for ids of any shape, or of one; each of R replicas computes a batch of one shape."""

    def __init__(self, computation: Computation, devices: Devices):
        import tensorflow as tf

        self._prepare, self._fixed_shape = computation.prepare, devices.fixed_shape
        strategy = devices.strategy or tf.distribute.get_strategy()
        self._num_replicas = strategy.num_replicas_in_sync
        smallest = self._prepare({name: np.zeros([1, 1], np.int32) for name in ENCODER_INPUTS})
        signature = {
            name: tf.TensorSpec([self._num_replicas, *(self._fixed_shape or [None] * values.ndim)], values.dtype)
            for name, values in smallest.items()
        }

        def compute_replica(batches: Tensors) -> Tensors:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return computation.compute({name: values[replica] for name, values in batches.items()})

        def compute_all(batches: Tensors) -> Any:
            return strategy.experimental_local_results(strategy.run(lambda: compute_replica(batches)))

        self._compute = tf.function(compute_all, input_signature=[signature], autograph=False)

    def most_rows(self, number: int) -> int:
        """See `Engine`."""
        return self._fixed_shape[0] if self._fixed_shape else number

    def __call__(self, ids: Arrays) -> Arrays:
        (found,) = self.all([ids])
        return found

    def all(self, batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """See `Engine`."""
        prepared = map(self._prepare, batches)
        while group := list(itertools.islice(prepared, self._num_replicas)):
            filled = group + group[:1] * (self._num_replicas - len(group))
            found = self._compute({name: self._stacked([batch[name] for batch in filled]) for name in group[0]})
            for batch, outputs in zip(group, found, strict=False):
                yield {name: values.numpy()[: len(batch["input_ids"])] for name, values in outputs.items()}

    def _stacked(self, tables: Sequence[np.ndarray]) -> np.ndarray:
        """Stack arrays, [B, S] each, filled up to one shape with their first rows and with zeros: [R, B, S]."""
        num_rows, length = self._fixed_shape or np.max([table.shape for table in tables], axis=0)
        if all(table.shape == (num_rows, length) for table in tables):
            return np.stack(tables)
        filled = (np.concatenate([table, table[:1].repeat(num_rows - len(table), axis=0)]) for table in tables)
        return np.stack([np.pad(table, [(0, 0), (0, length - table.shape[1])]) for table in filled])


class JaxEngine(Engine):
    """A function that is compiled for few shapes: rows and positions are filled up to a few numbers of them."""

    def __init__(self, computation: Computation):
        import jax

        def compute(values: Sequence[Any], inputs: Tensors) -> Tensors:
            with keras.StatelessScope(zip(computation.variables, values, strict=True)):
                return computation.compute(inputs)

        self._computation, self._compute = computation, jax.jit(compute)
        self._lengths = padded_lengths(computation.most_positions)

    def most_rows(self, number: int) -> int:
        """Return a power of two, to which rows are filled up."""
        return 1 << (number.bit_length() - 1)

    def __call__(self, ids: Arrays) -> Arrays:
        num_rows, length = ids["input_ids"].shape
        inputs = {name: self._padded(name, values) for name, values in self._computation.prepare(ids).items()}
        found = self._compute([variable.value for variable in self._computation.variables], inputs)
        rows = {name: np.asarray(values)[:num_rows] for name, values in found.items()}
        cut = self._computation.per_position
        return {name: values[:, :length] if name in cut else values for name, values in rows.items()}

    def _padded(self, name: str, values: np.ndarray) -> np.ndarray:
        num_rows, length = values.shape
        missing = (1 << (num_rows - 1).bit_length()) - num_rows
        width = next((size for size in self._lengths if size >= length), length)
        filler = self._computation.pad_id if name == "input_ids" else 0
        return np.pad(values, [(0, missing), (0, width - length)], constant_values=filler)
