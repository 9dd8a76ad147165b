"""`run_ner.py` as a `FinetuningJob`: its sentences, records, report and output files."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.data.batches import RECORD_INDEX
from official_bert.metrics.tagging import (
    Entity,
    TaggingScores,
    character_scores,
    conlleval_report,
    find_entities,
    has_entities,
    invalid_tags,
    scheme_of,
    score_tags,
)
from official_bert.modeling.pooling import num_vectors
from official_bert.support import writing
from official_bert.support.errors import UserError, format_names, pluralize
from official_bert.tasks.tagging.data import TaggedFile, TaggedSentence
from official_bert.tasks.tagging.options import CHARACTERS, TaggingConfig
from official_bert.tasks.tagging.reader import best_path
from official_bert.tasks.tagging.records import (
    PREDICTIONS_FILE,
    TaggedSplit,
    primary_metric,
    tags_of,
    tags_of_characters,
    warn_of_other_notation,
    write_predictions,
)
from official_bert.tasks.tagging.task import (
    LOSS_SUM,
    NUM_LABELLED,
    TAG_NUMBERS,
    TAG_SCORES,
    TaggingTask,
    check_constrainable,
    trained_tags,
    transitions_of,
)
from official_bert.tokenization import Tokenizer
from official_bert.training.devices import encoder_options
from official_bert.training.job import FinetuningJob, SplitRecords
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import (
    RESULTS_FILE,
    checkpoint_folder,
    folder_of_labels,
    read_run_config,
    selecting_metric,
)
from official_bert.visualization import report_page

OTHER_WORDS, NOTHING = "(other words)", "(nothing)"

_Pairs = Sequence[tuple[Sequence[Entity], Sequence[Entity]]]  # gold and predicted entities of each sentence
TEST_RESULTS_FILE = "test_results.txt"
EVAL_REPORT_FILE, TEST_REPORT_FILE = "eval_report.txt", "test_report.txt"

_NOT_LABELLED = 0  # label of a word with an unknown tag


def report_sections(
    sentences: Sequence[TaggedSentence],
    predicted: Sequence[Sequence[str]],
    *,
    scores: Mapping[str, Any],
    marks_entities: bool,
    separator: str = " ",
) -> list[report_page.Section]:
    find = find_entities if marks_entities else _words_as_entities
    pairs = [(find(sentence.tags), find(tags)) for sentence, tags in zip(sentences, predicted, strict=True)]
    kind = "entity type" if marks_entities else "tag"
    return [
        report_page.Scores(title="Scores", values=scores),
        _by_type(pairs, kind),
        _confusion(pairs, kind),
        _worst(sentences, pairs, shows_right=marks_entities, separator=separator),
    ]


def _words_as_entities(tags: Sequence[str]) -> list[Entity]:
    return [Entity(tag, index, index + 1) for index, tag in enumerate(tags)]


def _by_type(pairs: _Pairs, kind: str) -> report_page.Table:
    gold, predicted, correct = (
        Counter(entity.type for found in column for entity in found)
        for column in zip(*((gold, predicted, set(gold) & set(predicted)) for gold, predicted in pairs), strict=True)
    )
    names = sorted(gold | predicted)
    counts = ([counter[name] for name in names] for counter in (gold, predicted, correct))
    return report_page.scores_by_name(f"By {kind}", kind, names, *counts)


def _confusion(pairs: _Pairs, kind: str) -> report_page.Matrix:
    """Count gold entities by row and predicted ones by column; entities with the same words share a cell."""
    cells = []
    for gold, predicted in pairs:
        predicted_at = {(entity.start, entity.end): entity.type for entity in predicted}
        gold_at = {(entity.start, entity.end): entity.type for entity in gold}
        for place, name in gold_at.items():
            other = predicted_at[place] if place in predicted_at else _instead(place, predicted)
            cells.append((name, other))
        cells += [(_instead(place, gold), name) for place, name in predicted_at.items() if place not in gold_at]
    present = {name for cell in cells for name in cell}
    names = [*sorted(present - {OTHER_WORDS, NOTHING}), *(name for name in (OTHER_WORDS, NOTHING) if name in present)]
    numbers = {name: number for number, name in enumerate(names)}
    note = ""
    if present & {OTHER_WORDS, NOTHING}:
        note = (
            f"The column {NOTHING} counts missed gold entities, the row {NOTHING} spurious predictions; "
            f"{OTHER_WORDS}: an entity of any type with other words overlaps."
        )
    gold_numbers, predicted_numbers = ([numbers[cell[side]] for cell in cells] for side in (0, 1))
    return report_page.confusion_section(f"Confusion of {kind}s", names, gold_numbers, predicted_numbers, note=note)


def _instead(place: tuple[int, int], others: Sequence[Entity]) -> str:
    """Classify an entity without an exact counterpart on the other side."""
    start, end = place
    return OTHER_WORDS if any(other.start < end and start < other.end for other in others) else NOTHING


def _worst(
    sentences: Sequence[TaggedSentence], pairs: _Pairs, *, shows_right: bool, separator: str
) -> report_page.Mistakes:
    num_wrong = [len(set(gold) ^ set(predicted)) for gold, predicted in pairs]
    rows = sorted((row for row, count in enumerate(num_wrong) if count), key=lambda row: -num_wrong[row])
    mistakes = []
    for row in rows[: report_page.NUM_MISTAKES]:
        words, (gold, predicted) = sentences[row].words, pairs[row]
        right = set(gold) & set(predicted)
        facts = {
            "line": str(sentences[row].line),
            "missed": str(len(gold) - len(right)),
            "predicted wrongly": str(len(predicted) - len(right)),
        }
        texts = [
            report_page.Text(name, _marked_words(words, entities, right, shows_right=shows_right, separator=separator))
            for name, entities in (("gold", gold), ("predicted", predicted))
        ]
        mistakes.append(report_page.Mistake(facts, texts))
    note = f"{len(rows):,} of {len(sentences):,} sentences have a mistake."
    if len(rows) > len(mistakes):
        note += f" These are the {len(mistakes)} with the most."
    return report_page.Mistakes(title="Worst sentences", mistakes=mistakes, note=note)


def _marked_words(
    words: Sequence[str], entities: Sequence[Entity], right: set[Entity], *, shows_right: bool, separator: str
) -> list[report_page.Part]:
    """Return the words of a sentence with its entities marked; correct ones only on request."""
    starts = [0, *itertools.accumulate(len(word) + len(separator) for word in words)]  # one per word, plus one
    text, parts, end = separator.join(words), [], 0
    for entity in entities:
        if shows_right or entity not in right:
            start, stop = starts[entity.start], starts[entity.end] - len(separator)
            mark = "right" if entity in right else "wrong"
            parts += [report_page.Part(text[end:start]), report_page.Part(text[start:stop], mark, entity.type)]
            end = stop
    return [part for part in [*parts, report_page.Part(text[end:])] if part.text]


class TaggingJob(FinetuningJob):
    config: TaggingConfig
    label_noun = "tags"

    def __init__(
        self, config: TaggingConfig, bert_config: BertConfig, tokenizer: Tokenizer, data: Mapping[str, TaggedFile]
    ):
        """Check the files, by flag."""
        super().__init__(config, bert_config, tokenizer)
        train = data.get("train_file")
        self.labels = tags_of(train) if train else trained_tags(config)
        self._labels_of = train.path if train else folder_of_labels(config.output_dir, config.init_checkpoint)
        warn_of_other_notation(self.labels)
        self._has_entities = has_entities(self.labels)
        if config.constrained_decoding:
            tagged = [sentence.tags for file in data.values() for sentence in file.sentences if sentence.tags]
            check_constrainable(self.labels, tagged)
        num_vectors(config.feature_layers, bert_config.num_layers)  # raises if the model has too few layers
        self._train, self._dev, self._test = (
            self._split(flag, data[flag]) if flag in data else None
            for flag in ("train_file", "eval_file", "predict_file")
        )
        if config.document_context:
            self.export_warning = "the export reads sentences without their documents, though document_context=True"
        self.task = self.create_task(config, bert_config)
        self._metric_names = (
            *(("accuracy", "precision", "recall", "f1") if self._has_entities else ("accuracy",)),
            *(("entity_macro_f1", "character_macro_f1") if config.file_layout == CHARACTERS else ()),
        )
        default = primary_metric(self.labels)
        self.primary_metric = selecting_metric(config.primary_metric, default, self._metric_names)
        if self._train:
            self.training_split, self.num_training_examples = self._train, sum(1 for _ in self._train.windows())
        self.records = SplitRecords(config, self.task, config.max_seq_length, cuts_features=True)

    def check_output_folder(self) -> None:
        """See `FinetuningJob`; warn if the checkpoints were trained with another context."""
        super().check_output_folder()
        config = self.config
        run = read_run_config(config.output_dir) if latest_checkpoint(checkpoint_folder(config)) else None
        if run and run.flags.get("document_context", config.document_context) != config.document_context:
            logging.warning(
                "document_context=%s, but the checkpoints in %s were trained with document_context=%s; the scores "
                "may be lower than with the same value",
                config.document_context,
                config.output_dir,
                not config.document_context,
            )

    def create_task(self, config: TaggingConfig, bert_config: BertConfig) -> TaggingTask:
        return TaggingTask(
            bert_config,
            num_tags=len(self.labels),
            max_seq_length=config.max_seq_length,
            decodes_sequences=config.decodes_sequences,
            trainable_encoder=config.trainable_encoder,
            encoder_options=encoder_options(config),
            **config.model_options,
        )

    def scores(self, trainer: Trainer, step: int) -> dict[str, float]:
        return self._evaluate(trainer, step)[1]

    def evaluate(self, trainer: Trainer, step: int) -> None:
        """Write `eval_results.txt`, a report and, for entities, `eval_report.txt` in conlleval's format."""
        predicted, scores, tagging_scores = self._evaluate(trainer, step)
        if not trainer.cluster.is_chief:
            return
        results = report_page.by_importance({GLOBAL_STEP: step, **scores}, self.primary_metric)
        self._write_report(predicted, results)
        self._write_scores(results, tagging_scores, RESULTS_FILE, EVAL_REPORT_FILE)

    def predict(self, trainer: Trainer, step: int) -> None:
        """Write `predictions.conll` and, if the file has tags, `test_results.txt` and `test_report.txt`."""
        predicted, loss = self._predict(trainer, "predict", self._test)
        if not trainer.cluster.is_chief:
            return
        path = self.path(PREDICTIONS_FILE)
        write_predictions(path, self._test.file, predicted)
        logging.info("wrote the tags of %s to %s", pluralize(len(predicted), "sentence"), path)
        if self._test.is_tagged:
            scores, tagging_scores = self._scores("test", self._test, predicted, loss)
            primary = self.primary_metric.replace("eval_", "test_", 1)
            results = report_page.by_importance({GLOBAL_STEP: step, **scores}, primary)
            self._write_scores(results, tagging_scores, TEST_RESULTS_FILE, TEST_REPORT_FILE)
        else:
            self.warn_of_earlier(TEST_RESULTS_FILE, TEST_REPORT_FILE)

    def _split(self, flag: str, file: TaggedFile) -> TaggedSplit:
        """Return a file with the numbers of its tags; warn about tags that are unknown or break the scheme."""
        how = ", one per line" if file.layout == "sentences" else ""
        logging.info("%s: %s%s", file.path, pluralize(len(file.sentences), "sentence"), how)
        numbers = {tag: number for number, tag in enumerate(self.labels, start=1)}
        tags_of_sentences = [sentence.tags or [None] * len(sentence.words) for sentence in file.sentences]
        labels = [[numbers.get(tag, _NOT_LABELLED) for tag in tags] for tags in tags_of_sentences]
        unknown = [
            (tag, sentence.line) for sentence in file.sentences for tag in sentence.tags or () if tag not in numbers
        ]
        if unknown:
            names = format_names(sorted({tag for tag, _ in unknown}))
            message = f"{file.path}: the tags {names} are not among those of {self._labels_of}"
            if any(map(any, labels)):
                logging.warning(
                    "%s; the %d words that have them count as errors, the first of them in the sentence of line %d",
                    message,
                    len(unknown),
                    unknown[0][1],
                )
            elif flag == "eval_file":
                known = format_names(self.labels)
                raise UserError(f"{message}, which are {known}; check tag_column={self.config.tag_column}")
            else:
                logging.warning("%s; it is tagged, but not scored; if it has the tags, check tag_column", message)
                sentences = [sentence._replace(tags=None) for sentence in file.sentences]
                file = dataclasses.replace(file, sentences=sentences)
        if self._has_entities:
            _warn_of_breaks(file, "they are learned as they are, and " if flag == "train_file" else "they are ")
        config = self.config
        return TaggedSplit(file, self.labels, labels, self.tokenizer, config.max_seq_length, config.document_context)

    def _evaluate(self, trainer: Trainer, step: int) -> tuple[list[list[str]], dict[str, float], TaggingScores]:
        predicted, loss = self._predict(trainer, "eval", self._dev)
        scores, tagging_scores = self._scores("eval", self._dev, predicted, loss)
        self.log_scores(trainer, step, scores)
        return predicted, scores, tagging_scores

    def _predict(self, trainer: Trainer, name: str, split: TaggedSplit) -> tuple[list[list[str]], float]:
        """Return the predicted tags of each sentence, and the mean loss over words with known tags."""
        row_splits, windows = np.cumsum([0, *map(len, split.words)]), list(split.windows())
        output, *shape = (TAG_SCORES, len(self.labels)) if self.config.decodes_sequences else (TAG_NUMBERS,)
        of_words = np.zeros((row_splits[-1], *shape), np.float32 if shape else int)  # [W] or [W, C]
        is_tagged = np.zeros(len(of_words), bool)  # all words, but of characters only those that begin a wordpiece

        def read_words(part: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            for number, values in zip(part[RECORD_INDEX].tolist(), part.pop(output), strict=True):
                window = windows[number]
                places = row_splits[window.sentence] + np.asarray(window.words, int)
                of_words[places] = values[np.asarray(window.positions, int) + 1]  # after [CLS]
                is_tagged[places] = True
            return part

        outputs = self.records.predictions(trainer, name, split, is_scored=name == "eval", keep=read_words)
        (places,) = np.nonzero(is_tagged)
        of_words, splits = of_words[places], np.searchsorted(places, row_splits)
        if self.config.decodes_sequences:
            transitions = transitions_of(trainer.model, self.labels, self.config)
            sentences = (of_words[start:end] for start, end in itertools.pairwise(splits))
            of_words = [number for scores in sentences for number in best_path(scores, transitions)]
        names = np.full(len(is_tagged), None, object)
        names[places] = [self.labels[number] for number in of_words]
        tags = [names[start:end].tolist() for start, end in itertools.pairwise(row_splits)]
        if split.is_of_characters:
            tags = list(map(tags_of_characters, split.words, tags))
        num_labelled = float(outputs[NUM_LABELLED].sum(dtype=np.float64))
        return tags, float(outputs[LOSS_SUM].sum(dtype=np.float64)) / max(num_labelled, 1.0)

    def _scores(
        self, prefix: str, split: TaggedSplit, predicted: Sequence[Sequence[str]], loss: float
    ) -> tuple[dict[str, float], TaggingScores]:
        gold = [sentence.tags for sentence in split.file.sentences]
        scores = score_tags(gold, predicted)
        values = [scores.accuracy, *scores.total.scaled(1)][: 4 if self._has_entities else 1]
        if split.is_of_characters:
            values += character_scores(gold, predicted, split.words)
        by_name = {f"{prefix}_{name}": value for name, value in zip(self._metric_names, values, strict=True)}
        return {**by_name, f"{prefix}_loss": loss}, scores

    def _write_scores(
        self, results: Mapping[str, Any], tagging_scores: TaggingScores, results_file: str, report_file: str
    ) -> None:
        if self._has_entities:
            report = conlleval_report(tagging_scores)
            for line in (f"{report_file}:", *report.splitlines()):
                logging.info("%s", line)
            writing.write_file(self.path(report_file), report)
        write_results(self.path(results_file), results)

    def _write_report(self, predicted: Sequence[Sequence[str]], results: Mapping[str, Any]) -> None:
        sentences = self._dev.file.sentences
        separator = "" if self._dev.is_of_characters else " "
        how = {"marks_entities": self._has_entities, "separator": separator}
        sections = report_sections(sentences, predicted, scores=results, **how)
        title = f"{os.path.basename(self._dev.file.path)}: {pluralize(len(sentences), 'sentence')}"
        report_page.write_report(self.path(report_page.REPORT_FILE), title, sections)


def _warn_of_breaks(file: TaggedFile, use: str) -> None:
    """Warn about tags that break their scheme; they are still scored."""
    tagged = [sentence for sentence in file.sentences if sentence.tags]
    scheme = scheme_of(sentence.tags for sentence in tagged)
    found = [(sentence, word) for sentence in tagged for word in invalid_tags(sentence.tags, scheme)]
    if found:
        sentence, word = found[0]
        message = "%s: %d tags break the rules of %s, such as %s in the sentence of line %d; %sscored as by conlleval"
        logging.warning(message, file.path, len(found), scheme, sentence.tags[word], sentence.line, use)
