"""The `FinetuningJob` of `run_multiple_choice`: its examples, records, report and output files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.config.bert_config import BertConfig
from official_bert.data.record_files import ExampleSplit
from official_bert.support.console import write_rows
from official_bert.tasks.multiple_choice.data import ChoiceJoiner, Example
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig
from official_bert.tasks.multiple_choice.task import MultipleChoiceTask
from official_bert.tokenization import Tokenizer
from official_bert.training.devices import encoder_options
from official_bert.training.job import FinetuningJob, SplitRecords, reliability_section
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import RESULTS_FILE, selecting_metric
from official_bert.visualization import report_page

PREDICTIONS_FILE = "predictions.tsv"


def report_sections(
    examples: Sequence[Example], probabilities: np.ndarray, *, scores: Mapping[str, Any], lengths: Sequence[int]
) -> list[report_page.Section]:
    """Compute the sections of a report from probabilities, float32 [N, choices]."""
    labels, predicted = np.array([example.label for example in examples]), probabilities.argmax(axis=-1)
    confidences, is_correct = probabilities.max(axis=-1), labels == predicted

    def mistake(row: int) -> report_page.Mistake:
        return _mistake(examples[row], row, predicted[row], probabilities[row])

    numbers = [str(number) for number in range(probabilities.shape[1])]
    return [
        report_page.Scores(title="Scores", values=scores),
        report_page.confusion_section("By number", numbers, labels, predicted, note="Choices are numbered from 0."),
        reliability_section(
            confidences, is_correct, "A prediction is a choice; its confidence is that choice's probability."
        ),
        report_page.accuracy_by_length(lengths, is_correct),
        report_page.mistakes_section(mistake, confidences, is_correct, "by the probability of the wrong choice"),
    ]


def _mistake(example: Example, row: int, predicted: int, probabilities: np.ndarray) -> report_page.Mistake:
    facts = {
        "id": example.id or str(row),  # as in the file of predictions
        "gold": example.names[example.label],
        "predicted": example.names[predicted],
        "probability": f"{probabilities[predicted]:.4f}",
        "of the gold choice": f"{probabilities[example.label]:.4f}",
    }
    marks = {example.label: "gold", predicted: "predicted"}
    texts = [report_page.Text("context", [report_page.Part(example.context)])]
    texts += [report_page.Text("question", [report_page.Part(example.question)])] if example.question else []
    texts += [
        report_page.Text(name, [report_page.Part(choice, marks.get(number, ""))])
        for number, (name, choice) in enumerate(zip(example.names, example.choices, strict=True))
    ]
    return report_page.Mistake(facts, texts)


class _Split(NamedTuple):
    """A split: the name of its record file, its examples, and its task, whose records have room for their choices."""

    name: str
    choices: ExampleSplit
    task: MultipleChoiceTask
    records: SplitRecords

    @property
    def examples(self) -> list[Example]:
        return self.choices.examples

    def predictions(self, trainer: Trainer) -> dict[str, np.ndarray]:
        return self.records.predictions(trainer, self.name, self.choices, is_scored=self.name == "eval")


class MultipleChoiceJob(FinetuningJob):
    config: MultipleChoiceConfig

    def __init__(
        self,
        config: MultipleChoiceConfig,
        bert_config: BertConfig,
        tokenizer: Tokenizer,
        data: Sequence[list[Example] | None],
    ):
        super().__init__(config, bert_config, tokenizer)
        self.primary_metric = selecting_metric(config.primary_metric, "accuracy", ("accuracy",))
        self._joiner = ChoiceJoiner(tokenizer, config.max_seq_length)
        self._train, self._dev, self._test = (
            self._split(name, examples) if examples else None
            for name, examples in zip(("train", "eval", "predict"), data, strict=True)
        )
        trained = self._train or self._dev or self._test
        self.task = trained.task if trained else self.create_task(config, bert_config)
        if self._train:
            self.training_split, self.num_training_examples = self._train.choices, len(self._train.examples)
            self.records = self._train.records

    def _split(self, name: str, examples: list[Example]) -> _Split:
        config, num_choices = self.config, max(len(example.choices) for example in examples)
        logging.info("%s: %d examples with up to %d choices", name, len(examples), num_choices)
        task = self.create_task(config, self.bert_config, num_choices)
        records = SplitRecords(config, task, num_choices * config.max_seq_length)
        return _Split(name, ExampleSplit(self._joiner, examples), task, records)

    def create_task(
        self, config: MultipleChoiceConfig, bert_config: BertConfig, num_choices: int | None = None
    ) -> MultipleChoiceTask:
        """See `FinetuningJob`; by default with the choices of the training examples."""
        return MultipleChoiceTask(
            bert_config,
            num_choices=num_choices or (self._train.task.num_choices if self._train else 2),
            max_seq_length=config.max_seq_length,
            is_padded_to_longest=config.pads_dynamically and not config.uses_xla,
            trainable_encoder=config.trainable_encoder,
            encoder_options=encoder_options(config),
            **config.model_options,
        )

    def scores(self, trainer: Trainer, step: int) -> dict[str, float]:
        return self._evaluated(trainer, step)[1]

    def evaluate(self, trainer: Trainer, step: int) -> None:
        predicted, scores = self._evaluated(trainer, step)
        if not trainer.cluster.is_chief:
            return
        results = report_page.by_importance({GLOBAL_STEP: step, **scores}, self.primary_metric)
        examples, encode = self._dev.examples, self.tokenizer.encode
        lengths = [
            len(encode(example.context)) + max(len(encode(text)) for text in example.second_texts)
            for example in examples
        ]
        sections = report_sections(examples, predicted["probabilities"], scores=results, lengths=lengths)
        file = os.path.basename(self.config.layout.files["dev"])
        title = f"{self.config.task_name}: {file}, {len(examples):,} examples".removeprefix("custom: ")
        report_page.write_report(self.path(report_page.REPORT_FILE), title, sections)
        write_results(self.path(RESULTS_FILE), results)

    def _evaluated(self, trainer: Trainer, step: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        predicted = self._dev.predictions(trainer)
        scores = self._dev.task.scores(predicted)
        self.log_scores(trainer, step, scores)
        return predicted, scores

    def predict(self, trainer: Trainer, step: int) -> None:
        """Write `predictions.tsv`: for each example its choice, and the probabilities of all."""
        del step
        probabilities = self._test.predictions(trainer)["probabilities"]
        if trainer.cluster.is_chief:
            path = self.path(PREDICTIONS_FILE)
            write_rows(path, _prediction_rows(self._test.examples, probabilities))
            logging.info("wrote %d predictions to %s", len(probabilities), path)


def _prediction_rows(examples: list[Example], probabilities: np.ndarray) -> Iterator[list[str]]:
    yield ["id", "prediction", "choice", "probability", *(f"p{number}" for number in range(probabilities.shape[1]))]
    for number, (example, row) in enumerate(zip(examples, probabilities, strict=True)):
        best, cells = int(row.argmax()), [f"{share:.6f}" for share in row[: len(example.choices)]]
        chosen = [example.id or str(number), example.names[best], example.choices[best], cells[best]]
        yield chosen + cells + [""] * (len(row) - len(cells))
