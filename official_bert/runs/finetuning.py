"""What all runs that fine-tune have in common: which weights to begin with, when to evaluate, which to keep."""

import os
from collections.abc import Callable, Iterable, Mapping

from absl import logging

from official_bert.checkpoints.best import BestCheckpoint
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.names import BEST_FOLDER
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs import FinetuningOptions, SquadConfig
from official_bert.errors import UserError
from official_bert.runs.early_checks import checkpoint_folder
from official_bert.runs.training import check_resumed_flags, training_plan
from official_bert.tokenization import Vocabulary
from official_bert.training.loop import Trainer, TrainingPlan
from official_bert.training.run_folder import (
    check_room_for_model_files,
    check_same_model,
    read_run_config,
)


def check_initial_checkpoint(config: FinetuningOptions) -> None:
    """Opens the checkpoint that training begins with before long work is done, and warns if there is none.

    Raises:
      UserError: it cannot be read.
    """
    if config.init_checkpoint:
        CheckpointReader(config.init_checkpoint, "--init_checkpoint")
    elif not latest_checkpoint(checkpoint_folder(config)):
        logging.warning(
            "no --init_checkpoint: all weights are newly initialized, and fine-tuning alone teaches a model little; "
            "give a pretrained checkpoint"
        )


def check_same_run(
    config: FinetuningOptions, names: Iterable[str], bert_config: BertConfig, vocabulary: Vocabulary
) -> None:
    """Compares what checkpoints must be used with as they were trained with, since their variables do not tell.

    Args:
      config: the flags.
      names: of the flags to compare.
      bert_config: the architecture.
      vocabulary: the vocabulary.

    Raises:
      UserError: the checkpoints of the output folder were trained with another value of a flag, another vocabulary or
        another architecture; or the output folder has no room for copies of the model's files.
    """
    if latest_checkpoint(checkpoint_folder(config)):
        _check_flags_of(config.output_dir, config, names, "give the same, or use another --output_dir")
        check_same_model(config.output_dir, bert_config, vocabulary)
    elif config.do_train:
        check_room_for_model_files(
            config.output_dir, bert_config_file=config.bert_config_file, vocab_file=config.vocab_file
        )


def check_ensemble(config: SquadConfig, names: Iterable[str], bert_config: BertConfig, vocabulary: Vocabulary) -> None:
    """Looks at the checkpoints of an ensemble before long work begins; for the arguments see `check_same_run`.

    Raises:
      UserError: one cannot be read, or the run that made it had another flag, vocabulary or architecture.
    """
    for path in config.ensemble:
        folder = os.path.dirname(CheckpointReader(path, "--ensemble_checkpoints").prefix)
        if os.path.basename(folder) == BEST_FOLDER:
            folder = os.path.dirname(folder)
        _check_flags_of(folder, config, names, "give the same, or leave them out of --ensemble_checkpoints")
        check_same_model(folder, bert_config, vocabulary)


def _check_flags_of(folder: str, config: FinetuningOptions, names: Iterable[str], advice: str) -> None:
    run = read_run_config(folder)
    for flag in names if run else ():
        if flag in run.flags and _plain(run.flags[flag]) != _plain(getattr(config, flag)):
            raise UserError(
                f"--{flag}={getattr(config, flag)}, but the checkpoints in {folder} were trained with "
                f"--{flag}={run.flags[flag]}; {advice}"
            )


def _plain(value: object) -> object:
    return value.lower() if isinstance(value, str) else value  # --task_name=MRPC is mrpc


def check_same_examples(config: FinetuningOptions, *, made_from: str | None, wanted: str) -> None:
    """Compares what a run is to train on with what its checkpoints were trained on.

    Args:
      config: tells the output folder.
      made_from: fingerprint of the records that are there; None if that is not known.
      wanted: that of the records to be used.

    Raises:
      UserError: they differ, and there is a checkpoint.
    """
    latest = latest_checkpoint(config.output_dir)
    if latest and made_from not in (None, wanted):
        raise UserError(
            f"{latest} was trained on other examples, or with another vocabulary, casing or length; give what it "
            "was trained with, or use another --output_dir"
        )


def finetuning_plan(config: FinetuningOptions, num_examples: int) -> TrainingPlan:
    """The plan of passes over examples; the reference counts them before long ones become several records.

    Raises:
      UserError: they are too few for a step.
    """
    num_steps = int(num_examples / config.train_batch_size * config.num_train_epochs)
    if num_steps < 1:
        raise UserError(
            f"{num_examples} examples for --num_train_epochs={config.num_train_epochs:g} are less than one "
            f"step of --train_batch_size={config.train_batch_size}"
        )
    logging.info("%d training examples, %d steps", num_examples, num_steps)
    check_resumed_flags(config, num_steps)
    return training_plan(
        config,
        num_train_steps=num_steps,
        num_warmup_steps=int(num_steps * config.warmup_proportion),
        eval_steps=config.eval_steps,
    )


def checkpoint_to_export(config: FinetuningOptions) -> str:
    """The checkpoint to export: the output folder's, otherwise the initial one; warns of another length than it had."""
    latest = latest_checkpoint(checkpoint_folder(config))
    logging.info("--do_export: weights of %s", latest or config.init_checkpoint)
    run = read_run_config(config.output_dir)
    trained = run.flags.get("max_seq_length") if run else None
    if latest and trained not in (None, config.max_seq_length):
        logging.warning(
            "--do_export: the model was trained with --max_seq_length=%d; exported, it reads %d wordpieces of a text",
            trained,
            config.max_seq_length,
        )
    return latest or config.init_checkpoint


def has_stopped_early(config: FinetuningOptions) -> bool:
    """Tells, and warns, if an earlier run into the output folder ended since it got no better any more."""
    patience = config.early_stopping_patience
    if patience and BestCheckpoint(config.output_dir).num_since_best >= patience:
        logging.warning(
            "training into %s stopped early before; raise --early_stopping_patience to go on", config.output_dir
        )
        return True
    return False


def best_keeper(
    config: FinetuningOptions, trainer: Trainer, headline: str, scores_at: Callable[[int], Mapping[str, float]]
) -> Callable[[int], bool] | None:
    """A function for the Trainer: evaluates, keeps the best checkpoint, tells whether to stop early.

    Args:
      config: tells the output folder and the patience.
      trainer: whose weights are kept.
      headline: the score that decides; more is better.
      scores_at: evaluates, given the step.

    Returns:
      The function; None without `eval_steps`.
    """
    if not config.eval_steps:
        return None
    best, patience = BestCheckpoint(config.output_dir), config.early_stopping_patience

    def evaluate(step: int) -> bool:
        if not best.has(step):  # otherwise the run was stopped right after it
            scores = scores_at(step)
            logging.info("step %d: %s", step, ", ".join(f"{name} {score:.4f}" for name, score in scores.items()))
            saved = best.add(step, scores[headline], lambda: trainer.save_weights(best.folder, step))
            if saved:
                logging.info("its %s is the best so far; saved %s", headline, saved)
        if patience and best.num_since_best >= patience:
            logging.info("%d evaluations without a better %s: training stops early", patience, headline)
            return True
        return False

    return evaluate


def load_weights(config: FinetuningOptions, trainer: Trainer, flag: str) -> int:
    """Sets the weights to evaluate or predict with: the output folder's, otherwise the initial ones.

    Args:
      config: tells where they are.
      trainer: whose model gets them.
      flag: what is to be done, for the log.

    Returns:
      Their step; 0 of initial ones.
    """
    latest = latest_checkpoint(checkpoint_folder(config))
    logging.info("%s: weights of %s", flag, latest or config.init_checkpoint)
    if latest:
        return trainer.restore(latest)
    report = trainer.load_initial(config.init_checkpoint)
    if report.missing:
        logging.warning("%s: the checkpoint lacks %s: newly initialized; train first", flag, ", ".join(report.missing))
    return 0
