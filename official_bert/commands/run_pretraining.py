"""`run_pretraining`: records in; checkpoints and evaluation results out."""

from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.support.input_files import find_inputs, is_no_sidecar
from official_bert.tasks.pretraining.options import PretrainingConfig


def check(config: PretrainingConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint
    from official_bert.tasks.pretraining.vocabulary import with_vocabulary
    from official_bert.training.model_files import read_fitting_vocabulary, read_model_files
    from official_bert.training.run_folder import check_has_checkpoint

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


def run(config: PretrainingConfig) -> None:
    """Train, evaluate and export, as the flags say.

    Raises:
      UserError: a flag, a file or a checkpoint is wrong, or a loss is not finite.
    """
    from official_bert.tasks.pretraining.job import pretrain

    pretrain(config)


COMMAND = Command(
    name="run_pretraining",
    config_class=PretrainingConfig,
    summary="Pretrains BERT with masked language modeling and next sentence prediction, and evaluates it.",
    usage=r"""
  {command} --input_file=records.tfrecord --output_dir=out --bert_config_file=bert_config.json \
      --do_train --do_eval
""",
    check=check,
    run=run,
)
