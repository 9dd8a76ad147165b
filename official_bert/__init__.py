"""BERT on TensorFlow 2 and Keras 3, faithful to the commands, files and numbers of the first release.

    import official_bert

    encoder = official_bert.BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")
    outputs = encoder(input_ids=[[101, 7592, 2088, 102]])
    outputs["pooled_output"]      # float [1, 768], a vector for the whole sequence
    outputs["sequence_output"]    # float [1, 4, 768], a vector for each wordpiece

    model = official_bert.ClassificationModel(encoder, num_outputs=2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit([input_ids, input_mask, segment_ids], labels)

What is here:
    BertConfig             the architecture, as bert_config.json describes it
    AlbertConfig, DistilBertConfig, ElectraConfig    that of another family
    BertEncoder            embeddings, transformer layers and pooler: a keras.Model
    ClassificationModel    an encoder and a classifier of texts
    SpanModel              an encoder and the scores of where an answer starts and ends
    TaggingModel           an encoder and the scores of the tags of each wordpiece
    SentenceModel          an encoder and what makes one vector of each text
    PretrainingModel       an encoder and the heads of pretraining
    FullTokenizer          text to wordpieces and their ids
    SentencePieceTokenizer text to the pieces of a SentencePiece model, as ALBERT reads it
    load_tokenizer         either of them, from the folder of a model
    DatasetTokenizer       the same for the strings of a tf.data.Dataset
    CorpusReader           the lines of a part of a corpus
    corpus_parts           the parts of the files of a corpus, for several processes
    Predictor              answers and vectors of a trained or exported model
    AttentionReader        what each attention head of a model attends to in a text
    save_model             what Keras's fit has trained, saved for the Predictor and the scripts
    export                 what a run or save_model left in a folder, exported for TensorFlow Serving or LiteRT
    load_export            an exported model with its signatures
    VectorIndex            an index of vectors that beam_predict wrote
    retrieval_scores       recall, MRR and nDCG of rankings
    Trainer                trains a Task of your own on any devices, with exact resumes
    Task                   what a Trainer needs of a task
    TrainingPlan           how long and how fast a Trainer trains, and what it saves
    WeightedSum            a loss that batches and replicas add up exactly
    AdamWeightDecay        the reference's optimizer, for Keras's compile
    Lamb                   an optimizer for large batches
    LinearWarmupThenDecay  its learning rates
    LinearWarmupThenCosine, LinearWarmupThenConstant    two other schedules

Each is imported when it is first used, so that `import official_bert` costs nothing. Where Keras has been imported
already, the models are too, so that `keras.models.load_model` knows them. The scripts, such as `run_classifier.py`,
do the same work from files to files; `python -m official_bert` lists them.
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
