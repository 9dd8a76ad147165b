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
    FullTokenizer          converts text to wordpieces and their ids
    SentencePieceTokenizer converts text to the pieces of a SentencePiece model, as for ALBERT
    load_tokenizer         loads either tokenizer from the folder of a model
    DatasetTokenizer       tokenizes the strings of a tf.data.Dataset
    CorpusReader           reads the lines of a part of a corpus
    corpus_parts           divides the files of a corpus among several processes
    Predictor              predictions and vectors of a trained or exported model
    AttentionReader        attention probabilities of each head for a text
    save_model             saves a model trained by Keras's fit for the Predictor and the scripts
    export                 exports a saved model or a run for TensorFlow Serving, LiteRT or ONNX
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

Each is imported on first use, so that `import official_bert` is cheap. If Keras is already imported, the models are
imported too, so that `keras.models.load_model` knows them. The scripts, such as `run_classifier.py`, do the same work
on files; `python -m official_bert` lists them.
"""

import importlib
import sys

__version__ = "0.1.0"

# Name to the module that defines it.
_PUBLIC = {
    "AdamWeightDecay": "official_bert.optimization",
    "AttentionReader": "official_bert.inference.attention_reader",
    "AlbertConfig": "official_bert.families.albert",
    "BertConfig": "official_bert.config.bert_config",
    "BertEncoder": "official_bert.modeling.encoder",
    "ClassificationModel": "official_bert.modeling.classifier",
    "CorpusReader": "official_bert.data.corpus_files",
    "DatasetTokenizer": "official_bert.data.dataset_tokenizer",
    "DistilBertConfig": "official_bert.families.distilbert",
    "ElectraConfig": "official_bert.families.electra",
    "FullTokenizer": "official_bert.tokenization",
    "Predictor": "official_bert.inference.predictor",
    "Lamb": "official_bert.optimization",
    "LinearWarmupThenConstant": "official_bert.optimization",
    "LinearWarmupThenCosine": "official_bert.optimization",
    "LinearWarmupThenDecay": "official_bert.optimization",
    "MultipleChoiceModel": "official_bert.modeling.multiple_choice",
    "PretrainingModel": "official_bert.modeling.pretraining",
    "SentenceModel": "official_bert.modeling.sentence",
    "SentencePieceTokenizer": "official_bert.tokenization",
    "SpanModel": "official_bert.modeling.span",
    "TaggingModel": "official_bert.modeling.tagging",
    "Task": "official_bert.training.task",
    "Trainer": "official_bert.training.loop",
    "TrainingPlan": "official_bert.training.plan",
    "WeightedSum": "official_bert.training.task",
    "corpus_parts": "official_bert.data.corpus_files",
    "export": "official_bert.inference.finished_runs",
    "load_export": "official_bert.inference.exports",
    "load_tokenizer": "official_bert.tokenization",
    "retrieval_scores": "official_bert.metrics.retrieval",
    "VectorIndex": "official_bert.inference.vector_index",
    "save_model": "official_bert.inference.saving",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


if "keras" in sys.modules:
    for module_name in {name for name in _PUBLIC.values() if ".modeling." in name or name.endswith("optimization")}:
        importlib.import_module(module_name)
