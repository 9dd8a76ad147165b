"""Checks of the files that a script runs before it imports TensorFlow, which takes seconds.

Nothing is written and little is read; the run itself checks the contents.
"""

import os

from official_bert.checkpoints.state_file import find_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.hf_config import read_hf_config
from official_bert.config.run_configs.ablation import AblationConfig
from official_bert.config.run_configs.beam import BeamPredictionConfig
from official_bert.config.run_configs.classification import ClassifierConfig
from official_bert.config.run_configs.corpus import CorpusOptions, SplitSentencesConfig
from official_bert.config.run_configs.features import FeatureConfig
from official_bert.config.run_configs.pretraining import BeamPretrainingDataConfig, PretrainingConfig, RecordOptions
from official_bert.config.run_configs.question_answering import AnswerConfig, SquadConfig
from official_bert.config.run_configs.serving import ServeConfig
from official_bert.config.run_configs.similarity import SentenceOptions, SimilarityConfig, WordVectorConfig
from official_bert.config.run_configs.tagging import TaggingConfig
from official_bert.config.run_configs.tools import (
    AttentionConfig,
    AveragingConfig,
    CurvesConfig,
    FillMaskConfig,
    HfConversionConfig,
    StripCheckpointConfig,
    StudentConfig,
    VocabConfig,
    VocabularyChangeOptions,
)
from official_bert.config.run_configs.training import FinetuningOptions
from official_bert.data.corpus_files import corpus_parts
from official_bert.data.text_inputs import TextSource
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.extras import check_installed, require
from official_bert.support.input_files import find_inputs, is_no_sidecar
from official_bert.tasks.classification.datasets.custom import CUSTOM, check_custom_file
from official_bert.tasks.classification.datasets.published import named_dataset, xnli
from official_bert.tasks.pretraining.vocabulary import with_vocabulary
from official_bert.tasks.question_answering.windows import WindowOptions
from official_bert.tasks.tagging.files import configured_file
from official_bert.tokenization import read_tokenizer
from official_bert.tokenization.vocab import Vocabulary
from official_bert.training.model_files import check_fits, read_fitting_vocabulary, read_model_files
from official_bert.training.run_folder import check_has_checkpoint


def check_pretraining_data(config: RecordOptions) -> None:
    """Checks the files of `create_pretraining_data.py`; see `check_classifier`."""
    _check_corpus(config)
    read_tokenizer(config)


def check_pretraining(config: PretrainingConfig) -> None:
    """Checks the files of `run_pretraining.py`; see `check_classifier`."""
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_length(config.max_seq_length, config.bert_config_file)
    computes = config.do_train or config.do_eval
    paths = find_inputs(config.input_file, is_input=is_no_sidecar) if computes else []
    config = with_vocabulary(config, paths)
    if config.do_export:
        read_model_files(config)
        bert_config.export_parts(config.export_parallelism, config.bert_config_file)
    elif config.vocab_file or config.spm_model_file:
        read_fitting_vocabulary(config, bert_config)
    if config.init_checkpoint:
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    if config.teacher and not files.is_folder(config.teacher):  # a folder may be of Hugging Face
        find_checkpoint(config.teacher, "teacher")
    check_has_checkpoint(config)


def check_classifier(config: ClassifierConfig) -> None:
    """Checks the files of `run_classifier.py`.

    Raises:
      UserError: one is missing, or those of the model do not fit each other.
    """
    _check_finetuning(config)
    if config.task_name.lower() == CUSTOM:
        for name in config.required_files:
            path = os.path.join(config.data_dir, getattr(config, name))
            _check_file(path, name)
            texts = [column for column in (config.text_a_column, config.text_b_column) if column is not None]
            check_custom_file(path, texts, None if name == "predict_file" else config.label_column)
        return
    is_xnli = config.task_name.lower() == "xnli"
    dataset = xnli(config.xnli_language, config.train_file) if is_xnli else named_dataset(config.task_name)
    splits = [
        *(("train",) if config.do_train else ()),
        *(dataset.eval_splits if config.is_evaluated else ()),
        *(dataset.test_splits if config.do_predict else ()),
    ]
    for split in splits:
        dataset.find(config.data_dir, split)


def check_squad(config: SquadConfig) -> None:
    """Checks the files of `run_squad.py`, and that the windows overlap; see `check_classifier`."""
    WindowOptions.of(config)
    if not config.ensemble:
        _check_finetuning(config)
    else:
        read_model_files(config)
        for path in config.ensemble:
            find_checkpoint(path, "ensemble_checkpoints")
    if config.do_train:
        _check_file(config.train_file, "train_file")
    if config.do_predict or (config.do_train and config.eval_steps):
        _check_file(config.predict_file, "predict_file")


def check_ner(config: TaggingConfig) -> None:
    """Checks the files of `run_ner.py`; see `check_classifier`."""
    _check_finetuning(config)
    for name in config.required_files:
        configured_file(config, name)


def check_extract_features(config: FeatureConfig) -> None:
    """Looks at the files of `extract_features.py`; see `check_classifier`."""
    TextSource.of(config).check()
    bert_config, _ = read_model_files(config)
    bert_config.check_layers(config.layer_indices, config.bert_config_file)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")


def check_sentence_similarity(config: SimilarityConfig) -> None:
    """Checks the files of `tools/sentence_similarity.py`; see `check_classifier`."""
    for name in ("candidates_file", "query_file", "sts_file"):
        if getattr(config, name) is not None:
            TextSource(getattr(config, name), parameter=name).check()
    _check_sentence_model(config)


def check_word_vectors(config: WordVectorConfig) -> None:
    """Checks the files of `tools/word_vectors.py`; see `check_classifier`."""
    TextSource(config.input_file).check()
    _check_sentence_model(config)
    if config.picture_file is not None:
        writing.check_writable_folder(config.picture_file, name="picture_file")
        check_installed("matplotlib", extra="plots")


def _check_sentence_model(config: SentenceOptions) -> None:
    bert_config, _ = read_model_files(config)
    bert_config.check_layers(config.layer_indices, config.bert_config_file)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")


def check_answer(config: AnswerConfig) -> None:
    """Checks the files of `tools/answer.py`; see `check_classifier`."""
    _check_file(config.context_file, "context_file")
    read_model_files(config)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")


def check_fill_mask(config: FillMaskConfig) -> None:
    """Checks the files of `tools/fill_mask.py`; see `check_classifier`."""
    _check_model(config)


def check_view_attention(config: AttentionConfig) -> None:
    """Checks the files of `tools/view_attention.py`, and that there is the head; see `check_classifier`."""
    _check_model(config).check_head(config.layer or 0, config.head or 0, config.bert_config_file)
    if config.format == "png":
        check_installed("matplotlib", extra="plots")


def check_plot_metrics(config: CurvesConfig) -> None:
    """Checks the files of `tools/plot_metrics.py`; see `check_classifier`."""
    for name in ("output_file", "picture_file"):
        if getattr(config, name) is not None:
            writing.check_writable_folder(getattr(config, name), name=name)
    if config.picture_file is not None:
        check_installed("matplotlib", extra="plots")


def _check_model(config: FillMaskConfig | AttentionConfig) -> BertConfig:
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    check_fits(read_tokenizer(config).vocabulary, bert_config, config)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")
    return bert_config


def check_hf_conversion(config: HfConversionConfig) -> None:
    """Checks the files of `tools/convert_hf_checkpoint.py`; see `check_classifier`."""
    if config.to_hf:
        check_fits(read_tokenizer(config).vocabulary, BertConfig.from_json_file(config.bert_config_file), config)
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    else:
        read_hf_config(os.path.join(config.hf_dir, "config.json"))


def check_strip_checkpoint(config: StripCheckpointConfig) -> None:
    """Checks the files of `tools/strip_checkpoint.py`; see `check_classifier`."""
    if config.init_checkpoint is not None:
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    else:
        find_checkpoint(config.checkpoint, "--checkpoint")


def check_split_sentences(config: SplitSentencesConfig) -> None:
    """Checks the files of `tools/split_sentences.py`; see `check_classifier`."""
    _check_corpus(config)


def check_build_vocab(config: VocabConfig) -> None:
    """Checks the files of `tools/build_vocab.py`; see `check_classifier`."""
    _check_corpus(config)


def check_average_checkpoints(config: AveragingConfig) -> None:
    """Checks the files of `tools/average_checkpoints.py`; see `check_classifier`."""
    for path in config.paths:
        find_checkpoint(path, "--checkpoints")


def check_make_student(config: StudentConfig) -> None:
    """Checks the files of `tools/make_student.py`; see `check_classifier`."""
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_has_own_layers(config.bert_config_file)
    bert_config.check_layers(config.chosen_layers(bert_config.num_hidden_layers), config.bert_config_file)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")
    if config.vocab_file is not None:
        check_fits(Vocabulary.from_file(config.vocab_file), bert_config, config)


def check_vocabulary_tool(config: VocabularyChangeOptions) -> None:
    """Checks the files of `tools/extend_vocab.py` and `tools/prune_vocab.py`; see `check_classifier`."""
    _check_corpus(config)
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    check_fits(Vocabulary.from_file(config.vocab_file), bert_config, config)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")


def check_ablation(config: AblationConfig) -> None:
    """Checks the files of `tools/ablation.py`; see `check_classifier`."""
    for name in ("bert_config_file", "vocab_file"):
        _check_file(getattr(config, name), name)
    if not files.is_folder(config.data_dir):
        raise UserError(f"--data_dir: there is no folder {config.data_dir}; check the path")
    for given in (config.input_file, config.heldout_file):
        corpus_parts(find_inputs(given), file_format=config.input_format, text_field=config.text_field)


def _check_corpus(config: CorpusOptions) -> None:
    corpus_parts(find_inputs(config.input_file), file_format=config.input_format, text_field=config.text_field)


def check_beam_pretraining_data(config: BeamPretrainingDataConfig) -> None:
    """Checks the files of `tools/beam_pretraining_data.py`; see `check_classifier`."""
    check_pretraining_data(config)
    require("apache_beam", extra="beam")


def check_beam_predict(config: BeamPredictionConfig) -> None:
    """Checks the files of `tools/beam_predict.py`; see `check_classifier`."""
    if not files.is_folder(config.model_dir):
        raise UserError(f"--model_dir: there is no folder {config.model_dir}; check the path")
    find_inputs(config.input_file, is_input=is_no_sidecar if config.reads_records else None)
    require("apache_beam", extra="beam")


def check_serve(config: ServeConfig) -> None:
    """Checks the files of `tools/serve.py`; see `check_classifier`."""
    if not files.is_folder(config.export_dir):
        raise UserError(f"--export_dir: there is no folder {config.export_dir}; check the path")
    check_installed("kserve", extra="serve")
    config.check_ports()


def _check_finetuning(config: FinetuningOptions) -> None:
    bert_config, _ = read_model_files(config)
    bert_config.export_parts(config.export_parallelism, config.bert_config_file)
    if config.init_checkpoint:
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    if config.teacher:
        find_checkpoint(config.teacher, "teacher")
    check_has_checkpoint(config)


def _check_file(path: str, flag: str) -> None:
    if not files.exists(path):
        raise UserError(f"--{flag}: there is no file {path}; check the path")
