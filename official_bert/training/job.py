"""`FinetuningJob`: the task-specific parts of a fine-tuning run, which `finetuning.finetune` executes."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data.records import RecordFile
from official_bert.options.finetuning import FinetuningOptions
from official_bert.tokenization import Tokenizer
from official_bert.training.distillation import DistillableTask
from official_bert.training.labels_file import check_label_order, check_same_labels
from official_bert.training.loop import Trainer
from official_bert.training.run_folder import RunFolder, checkpoint_folder


class FinetuningJob(abc.ABC):
    """Task-specific parts of a fine-tuning run. Creating a job reads and checks all files.

    Attributes:
      config: the flags.
      bert_config: the architecture.
      tokenizer: the tokenizer.
      task: model, losses and predictions.
      primary_metric: the score that selects the best checkpoint; higher is better.
      ensemble: checkpoints to predict with instead of the output folder's; usually empty.
      num_training_examples: number of training examples; None without training.
      labels: output names in order, saved in the output folder; None if outputs have no names.
      label_noun: the term for a label in messages.
    """

    config: FinetuningOptions
    bert_config: BertConfig
    tokenizer: Tokenizer
    task: DistillableTask
    primary_metric: str
    ensemble: tuple[str, ...] = ()
    num_training_examples: int | None = None
    labels: Sequence[str] | None = None
    label_noun: str = "labels"

    def __init__(self, config: FinetuningOptions, bert_config: BertConfig, tokenizer: Tokenizer):
        """Read and check all files of the task before any computation.

        Args:
          config: the flags.
          bert_config: the architecture.
          tokenizer: the tokenizer.

        Raises:
          UserError: a file is invalid.
        """
        self.config = config
        self.bert_config = bert_config
        self.tokenizer = tokenizer

    def check_output_folder(self) -> None:
        """Raise if the checkpoints to use have other labels; `finetune` checks the model's files.

        Raises:
          UserError: the message names the file.
        """
        if self.labels is not None and latest_checkpoint(checkpoint_folder(self.config)):
            check_same_labels(self.config.output_dir, self.labels, noun=self.label_noun)
        elif self.labels and self.config.init_checkpoint and not self.config.do_train:
            check_label_order(self.config.init_checkpoint, self.labels, noun=self.label_noun)

    def folder(self, trainer: Trainer) -> RunFolder:
        """Return the output folder of the run, which one worker of a trainer writes to."""
        return trainer.cluster.folder(self.config.output_dir)

    @abc.abstractmethod
    def create_task(self, config: FinetuningOptions, bert_config: BertConfig) -> DistillableTask:
        """Return this run's task with another model, a teacher's, given its flags and architecture."""

    @abc.abstractmethod
    def training_source(self) -> tuple[str, dict[str, Any]]:
        """Return the training record file, which may not exist yet, and the provenance that it must have."""

    @abc.abstractmethod
    def training_file(self, trainer: Trainer) -> RecordFile:
        """Return the file that training reads, which may not exist yet."""

    @abc.abstractmethod
    def write_training_records(self, trainer: Trainer) -> int:
        """Write that file, unless it exists.

        Args:
          trainer: its model has the initial weights.

        Returns:
          The number of records.
        """

    def evaluate(self, trainer: Trainer, step: int) -> None:
        """Score the trainer's weights at a step and write `eval_results.txt`."""
        raise NotImplementedError(f"{type(self).__name__} has no do_eval")

    @abc.abstractmethod
    def scores(self, trainer: Trainer, step: int) -> Mapping[str, float]:
        """Score the trainer's weights at a step during training."""

    @abc.abstractmethod
    def predict(self, trainer: Trainer, step: int) -> None:
        """Write predictions with the trainer's weights at a step."""

    @abc.abstractmethod
    def export(self, checkpoint: str) -> None:
        """Export a checkpoint as a SavedModel."""
