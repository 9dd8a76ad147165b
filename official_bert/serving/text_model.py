"""`TextModel`: a trained model with its tokenizer, which computes predictions from ids on any backend of Keras."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from typing_extensions import Self

from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import ENCODER_FIELDS, RecordSchema
from official_bert.modeling.encoder import BertEncoder, create_encoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
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
