"""The `FinetuningJob` of `run_sentence_encoder`: its examples, records, evaluation and output files."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.config.bert_config import BertConfig
from official_bert.config.poolings import BM25
from official_bert.data.batches import RECORD_INDEX
from official_bert.data.record_files import ExampleSplit
from official_bert.data.schema import RecordSchema
from official_bert.metrics.classification import accuracy, pearson, spearman
from official_bert.metrics.retrieval import (
    Bm25Weights,
    SparseRows,
    nearest,
    normalized,
    retrieval_scores,
    triplet_accuracy,
)
from official_bert.support import writing
from official_bert.tasks.sentence_encoder.data import Example, SentenceData, TextsJoiner, example_schema
from official_bert.tasks.sentence_encoder.options import REGULARIZER_WEIGHTS, SentenceEncoderConfig
from official_bert.tasks.sentence_encoder.task import Objective, SentenceEncoderTask
from official_bert.tokenization import Tokenizer
from official_bert.training.devices import encoder_options
from official_bert.training.job import FinetuningJob, SplitRecords
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import RESULTS_FILE
from official_bert.visualization.report_page import by_importance

_DEPTH = 10  # ranks

Table = np.ndarray | SparseRows
Vectors = Callable[[Sequence[str]], Table]  # maps N distinct texts to their vectors, float32 [N, D]
_PAIRS_AT_A_TIME = 256
VECTORS_FILE, SIMILARITIES_FILE = "vectors.npy", "similarities.tsv"


def primary_metric(examples: Sequence[Example], loss: str) -> str:
    if examples[0].scores and len(examples[0].texts) == 2:
        return "spearman"
    if loss == "softmax" or len(examples[0].texts) == 1:
        return "accuracy"
    return "mrr@10"


def scores_of_examples(
    examples: Sequence[Example], vectors: Vectors, classify: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
) -> dict[str, float]:
    """Return the scores of examples of one kind.

    Scored pairs have correlations of their dot products; anchors with positives and negatives retrieval scores among
    all other texts (of several scored candidates the best is the positive); single texts the accuracy of the class of
    the nearest neighbour; pairs with classes that of `classify`, from float32 [N, D] twice to logits [N, C].
    """
    examples = [_best_first(example) for example in examples]
    numbers = {
        text: number for example in examples for text, number in zip(example.texts, example.numbers, strict=True)
    }
    numbers.pop("", None)
    places = {text: row for row, text in enumerate(numbers)}
    table = vectors(list(numbers))
    by_column = zip(*(example.texts for example in examples), strict=True)
    columns = [np.array([places.get(text, -1) for text in column]) for column in by_column]
    labels = np.array([example.label for example in examples])
    if classify is not None:
        logits = np.asarray(classify(*(table[column] for column in columns[:2])))
        return {"accuracy": accuracy(labels, logits.argmax(axis=-1))}
    if len(columns) == 1:
        _, first = np.unique(columns[0], return_index=True)
        return {"accuracy": _nearest_accuracy(table.take(columns[0][first], axis=0), labels[first])}
    cosines = [_dot_products(table, columns[0], column) for column in columns[1:]]
    if examples[0].scores and len(columns) == 2:
        targets = np.array([example.scores[0] for example in examples])
        return {"pearson": pearson(targets, cosines[0]), "spearman": spearman(targets, cosines[0])}
    qrels: dict[int, dict[int, float]] = {}
    for example in examples:
        qrels.setdefault(example.numbers[0], {})[example.numbers[1]] = 1.0
    anchors = {example.numbers[0]: places[example.texts[0]] for example in examples}
    candidates = np.unique(np.concatenate([column[column >= 0] for column in columns[1:]]))
    names = [list(numbers.values())[row] for row in candidates]
    of_triplets = [
        triplet_accuracy(cosines[0][column >= 0], of_column[column >= 0])
        for column, of_column in zip(columns[2:], cosines[1:], strict=True)
        if (column >= 0).any()
    ]
    return {
        **_ranking_scores(table, candidates, names, anchors, qrels),
        **({"triplet_accuracy": float(np.mean(of_triplets))} if of_triplets else {}),
    }


def _best_first(example: Example) -> Example:
    """Order the candidates of an example by their scores, missing ones last; the first one is its positive."""
    if len(example.scores) < 2:
        return example
    ranks = [(-score if text else math.inf) for text, score in zip(example.texts[1:], example.scores, strict=True)]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    places = (0, *(place + 1 for place in order))
    return example._replace(
        texts=tuple(example.texts[place] for place in places),
        numbers=tuple(example.numbers[place] for place in places),
        scores=tuple(example.scores[place] for place in order),
    )


def retrieval(
    queries: Mapping[str, str], documents: Mapping[str, str], qrels: Mapping[str, Mapping[str, float]], vectors: Vectors
) -> dict[str, float]:
    """Evaluate retrieval by the dot products of vectors; queries, documents and judgments are keyed by id.

    As in BEIR, a document with the id of the query is left out: in ArguAna it is the query itself.
    """
    texts = list(dict.fromkeys((*queries.values(), *documents.values())))
    places = {text: row for row, text in enumerate(texts)}
    corpus = [places[text] for text in documents.values()]
    return _ranking_scores(
        vectors(texts), corpus, list(documents), {query: places[queries[query]] for query in qrels}, qrels
    )


def _dot_products(table: Table, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the dot products of pairs of rows, float32 [N]."""
    starts = range(0, len(first), _PAIRS_AT_A_TIME)
    pairs = ((rows[start : start + _PAIRS_AT_A_TIME] for rows in (first, second)) for start in starts)
    return np.concatenate([(table[some] * table[others]).sum(axis=-1) for some, others in pairs])


def _ranking_scores(
    table: Table,
    corpus: Sequence[int] | np.ndarray,
    names: Sequence,
    queries: Mapping[Any, int],
    qrels: Mapping[object, Mapping[object, float]],
) -> dict[str, float]:
    """Rank the rows of a table, float32 [N, D], that are a corpus for the row of each query, and score the rankings.

    `names` names the rows of the corpus. One with the name of the query is left out of its ranking unless it is judged.
    """
    rows, _ = nearest(table.take(corpus, axis=0), table.take(list(queries.values()), axis=0), _DEPTH + 1)
    ranked = {
        query: [names[row] for row in of_query if names[row] != query or query in qrels[query]][:_DEPTH]
        for query, of_query in zip(queries, rows, strict=True)
    }
    return retrieval_scores(ranked, qrels)


def _nearest_accuracy(vectors: Table, labels: np.ndarray) -> float:
    """Return the fraction of the vectors, float32 [N, D], whose nearest neighbour has the same class."""
    found, _ = nearest(vectors, vectors, 2)
    others = np.where(found[:, 0] == np.arange(len(vectors)), found[:, 1], found[:, 0])
    return accuracy(labels, labels[others])


class SentenceEncoderJob(FinetuningJob):
    config: SentenceEncoderConfig

    def __init__(
        self, config: SentenceEncoderConfig, bert_config: BertConfig, tokenizer: Tokenizer, data: SentenceData
    ):
        super().__init__(config, bert_config, tokenizer)
        self._layout = config.layout
        self._train, self._dev, self._test, self._beir, self.labels = data
        for prefix in (config.query_prefix, config.passage_prefix, config.prefix or ""):
            tokenizer.check_prefix(prefix, config.max_seq_length)
        self._joiner = TextsJoiner(tokenizer, config.max_seq_length)
        self.task = self.create_task(config, bert_config)
        self.primary_metric = "eval_ndcg@10" if self._beir else ""
        if self._dev:
            self.primary_metric = self.primary_metric or f"eval_{primary_metric(self._dev, config.loss_name)}"
        length, schema = config.max_seq_length, self._schema(bert_config, num_texts=1)
        self.records = SplitRecords(config, self.task, length * self._num_texts)
        self._text_records = SplitRecords(config, self.task, length, schema=schema)
        if self._train:
            self.training_split = ExampleSplit(self._joiner, self._train)
            self.num_training_examples = len(self._train)

    @property
    def _num_texts(self) -> int:
        return max(len(self._layout.texts), 2)  # single texts are trained in pairs

    def create_task(self, config: SentenceEncoderConfig, bert_config: BertConfig) -> SentenceEncoderTask:
        num_classes = len(self.labels or ()) if config.loss_name == "softmax" else 0
        schema = self._schema(
            bert_config, num_texts=self._num_texts, num_scores=len(self._layout.scores), num_classes=num_classes
        )
        return SentenceEncoderTask(
            bert_config,
            schema,
            Objective(
                *(config.loss_name, config.loss_options, config.soft_target_options, tuple(config.vector_sizes)),
                tuple(getattr(config, name) for name in REGULARIZER_WEIGHTS) if config.is_sparse else None,
            ),
            exported_size=config.vector_size if config.do_export else 0,
            num_classes=num_classes,
            is_padded_to_longest=config.pads_dynamically and not config.uses_xla,
            bm25=self._bm25(bert_config.vocab_size) if BM25 in config.poolings and self._train else None,
            encoder_options=encoder_options(config),
            **config.model_options,
        )

    def _schema(self, bert_config: BertConfig, *, num_texts: int, **sizes: int) -> RecordSchema:
        lengths = (self.config.max_seq_length, num_texts)
        return example_schema(*lengths, bert_config.vocab_size, bert_config.num_segments, **sizes)

    def _bm25(self, vocab_size: int) -> dict[str, Any]:
        """Compute the values of `SentenceModel.bm25` from the distinct training texts."""
        texts = {text: None for example in self._train for text in example.texts if text}
        weights = Bm25Weights.fit(map(self._joiner.words, texts), vocab_size)
        weights.idf[[self.tokenizer.specials.cls_id, self.tokenizer.specials.sep_id]] = 0  # excluded from the mean
        return weights._asdict()

    def scores(self, trainer: Trainer, step: int) -> dict[str, float]:
        scores, active_dims = {}, []

        def vectors(texts: Sequence[str], purpose: str = "eval", *, is_scaled: bool = True) -> Table:
            found = self._vectors(trainer, purpose, texts)
            if isinstance(found, SparseRows):
                active_dims.extend(np.diff(found.row_splits))
                return found
            return normalized(found).astype(np.float32) if is_scaled else found

        if self._dev and self.config.loss_name == "softmax":
            unscaled = functools.partial(vectors, is_scaled=False)
            scores |= scores_of_examples(self._dev, unscaled, trainer.model.classify)
        elif self._dev:
            scores |= scores_of_examples(self._dev, vectors, None)
        if self._beir:
            scores |= retrieval(*self._beir, functools.partial(vectors, purpose="retrieval"))
        if self.config.is_sparse:
            scores["active_dims"] = float(np.mean(active_dims))
        scores = {f"eval_{name}": score for name, score in scores.items()}
        self.log_scores(trainer, step, scores)
        return scores

    def evaluate(self, trainer: Trainer, step: int) -> None:
        scores = self.scores(trainer, step)
        if trainer.cluster.is_chief:
            results = by_importance({GLOBAL_STEP: step, **scores}, self.primary_metric)
            write_results(self.path(RESULTS_FILE), results)

    def predict(self, trainer: Trainer, step: int) -> None:
        """Write the vectors, float32 [N, K, D], and for K > 1 the similarity of the first text to each other."""
        del step
        texts = list({text: None for example in self._test for text in example.texts if text})
        vectors = self._vectors(trainer, "predict", texts)[:]
        if not trainer.cluster.is_chief:
            return
        rows = {"": len(texts), **{text: row for row, text in enumerate(texts)}}
        vectors = np.concatenate([vectors, np.zeros_like(vectors[:1])])  # the last row stands for a missing text
        of_examples = vectors[[[rows[text] for text in example.texts] for example in self._test]]
        path = self.path(VECTORS_FILE)
        with writing.atomic_write(path, "wb") as sink:
            np.save(sink, of_examples)
        logging.info("wrote the vectors of %d examples to %s", len(of_examples), path)
        if len(self._layout.texts) > 1:
            compared = of_examples if self.config.is_sparse else normalized(of_examples)
            found = (compared[:, :1] * compared[:, 1:]).sum(axis=-1)
            with writing.atomic_write(self.path(SIMILARITIES_FILE)) as sink:
                sink.writelines("\t".join(f"{value:.6f}" for value in row) + "\n" for row in found)

    def _vectors(self, trainer: Trainer, purpose: str, texts: Sequence[str]) -> Table:
        """Compute the vectors of distinct texts, float32 [N, D]; `purpose` names the record file."""

        def compressed(part: dict[str, Any]) -> dict[str, Any]:
            vectors = part.pop("vectors")[:, 0]
            batches.append((part[RECORD_INDEX], SparseRows.from_rows([vectors], vectors.shape[1])))
            return part

        batches: list[tuple[np.ndarray, SparseRows]] = []
        split = ExampleSplit(self._joiner, [Example((text,), (1,)) for text in texts])
        is_scored = purpose != "predict"
        found = self._text_records.predictions(
            trainer, f"{purpose}_texts", split, is_scored=is_scored, keep=compressed if self.config.is_sparse else None
        )
        if not self.config.is_sparse:
            return found["vectors"][:, 0]
        numbers, parts = zip(*batches, strict=True)
        return SparseRows.joined(parts).take(np.argsort(np.concatenate(numbers)))
