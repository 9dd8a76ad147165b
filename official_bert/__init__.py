"""BERT on TensorFlow 2 and Keras 3, faithful to the commands, files and numbers of the first release.

    import official_bert

    encoder = official_bert.BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")
    outputs = encoder(input_ids=[[101, 7592, 2088, 102]])
    outputs["pooled_output"]      # float [1, 768], a vector for the whole sequence
    outputs["sequence_output"]    # float [1, 4, 768], a vector for each wordpiece

    model = official_bert.ClassificationModel(encoder, num_outputs=2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit([input_ids, input_mask, segment_ids], labels)

Public names:
    BertConfig             the architecture, as in bert_config.json
    AlbertConfig, DistilBertConfig, ElectraConfig    architectures of other families
    BertEncoder            embeddings, transformer layers and pooler: a keras.Model
    ClassificationModel    an encoder with a text classifier
    SpanModel              an encoder with scores for the start and end of an answer
    TaggingModel           an encoder with scores for the tags of each wordpiece
    MultipleChoiceModel    an encoder with scores for the choices of a context
    SentenceModel          an encoder with pooling: one vector per text
    PretrainingModel       an encoder with the pretraining heads
    ReplacedTokenModel     an encoder with a score of each token: ELECTRA's discriminator
    FullTokenizer          converts text to wordpieces and their ids
    SentencePieceTokenizer converts text to the pieces of a SentencePiece model, as for ALBERT
    load_tokenizer         loads either tokenizer from the folder of a model
    DatasetTokenizer       tokenizes the strings of a tf.data.Dataset
    CorpusReader           reads the lines of a part of a corpus
    corpus_parts           divides the files of a corpus among several processes
    Predictor              predictions and vectors of a trained or exported model
    AttentionReader        attention probabilities of each head for a text
    save_model             saves a model trained by Keras's fit for the Predictor and the scripts
    export                 exports a model or a run for TensorFlow Serving, LiteRT or ONNX
    load_export            loads an exported model with its signatures
    VectorIndex            a search index of vectors written by beam_predict
    retrieval_scores       recall, MRR and nDCG of rankings
    Trainer                trains your own Task on any devices, with exact resumption
    Task                   the interface of a task for the Trainer
    TrainingPlan           steps, learning rate and checkpoints of a Trainer
    WeightedSum            a loss that adds up exactly over batches and replicas
    AdamWeightDecay        the reference's optimizer, for Keras's compile
    Lamb                   an optimizer for large batches
    LinearWarmupThenDecay  the reference's learning rate schedule
    LinearWarmupThenCosine, LinearWarmupThenConstant    two other schedules

Each is imported on first use, so that `import official_bert` is cheap. When Keras is imported, before or after, the
models are imported too, so that `keras.models.load_model` knows them. The scripts, such as `run_classifier.py`, do the
same work on files; `python -m official_bert` lists them.
"""

import importlib
import importlib.util
import re
import sys

from official_bert.lazy import listed_names

__version__ = "0.1.0"

_PUBLIC = listed_names(__spec__)

__all__ = [*_PUBLIC, "__version__"]

# Our names of classes in transformers and KerasHub, by the ends of theirs.
_OTHER_NAMES = {
    "ElectraForPreTraining": "ReplacedTokenModel",
    "Tokenizer|TokenizerFast": "load_tokenizer",
    "Model|Backbone": "BertEncoder",
    "SequenceClassification|TextClassifier": "ClassificationModel",
    "TokenClassification": "TaggingModel",
    "QuestionAnswering": "SpanModel",
    "MultipleChoice": "MultipleChoiceModel",
    "MaskedLM|PreTraining": "PretrainingModel",
    "pipeline": "Predictor",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _PUBLIC:
        if ours := next((ours for ends, ours in _OTHER_NAMES.items() if re.search(f"({ends})$", name)), None):
            raise ImportError(f"official_bert has no {name}; use official_bert.{ours}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    _register_models()
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_OF_KERAS = {name for name in _PUBLIC.values() if ".modeling." in name or name.endswith("optimization")}
_IMPORTING_KERAS = ("official_bert.modeling.", "official_bert.optimization.")


def _register_models() -> None:
    """Import the models if Keras is imported: each is registered with `keras.saving` when it is defined."""
    for name in _OF_KERAS if "keras" in sys.modules else ():
        importlib.import_module(name)


class _KerasFinder:
    """A finder of `sys.meta_path` that changes only one thing: when Keras has been imported, the models are, too."""

    is_asked = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "keras" or self.is_asked:
            return None
        self.is_asked = True
        try:
            spec = importlib.util.find_spec(name)  # of the other finders
        finally:
            self.is_asked = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: object) -> None:
                execute(module)
                if not any(name.startswith(_IMPORTING_KERAS) for name in sys.modules):  # one of them is importing it
                    _register_models()

            spec.loader.exec_module = execute_and_register
        return spec


if "keras" in sys.modules:
    _register_models()
else:
    sys.meta_path.insert(0, _KerasFinder())
