"""Scores of vectors on evaluation data: correlation with scores, retrieval, triplets, classes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from official_bert.metrics.classification import accuracy, pearson, spearman
from official_bert.metrics.retrieval import retrieval_scores, triplet_accuracy
from official_bert.metrics.similarity import nearest, normalized
from official_bert.tasks.sentence_encoder.examples import Example

_DEPTH = 10  # ranks

Vectors = Callable[[Sequence[str]], np.ndarray]
"""Function from N distinct texts to vectors, float32 [N, D]."""


def primary_metric(examples: Sequence[Example], loss: str) -> str:
    """Return the name of the score of `scores` that selects a checkpoint."""
    if examples[0].scores and len(examples[0].texts) == 2:
        return "spearman"
    if loss == "softmax" or len(examples[0].texts) == 1:
        return "accuracy"
    return "mrr@10"


def scores(
    examples: Sequence[Example], vectors: Vectors, classify: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
) -> dict[str, float]:
    """Score the vectors of the texts of examples.

    Args:
      examples: scored pairs, for the correlation of cosine similarities with scores; anchors with positives and
        optional negatives, for retrieval among all other texts; single texts with classes, for the class of the
        nearest other text; or pairs with classes.
      vectors: computes the vectors.
      classify: maps the vectors of pairs, float32 [N, D] each, to logits, float32 [N, C]; None without a classifier.

    Returns:
      pearson and spearman; recall@1, recall@10, mrr@10 and ndcg@10, and for negatives triplet_accuracy; or accuracy.
    """
    numbers = {
        text: number for example in examples for text, number in zip(example.texts, example.numbers, strict=True)
    }
    numbers.pop("", None)
    places = {text: row for row, text in enumerate(numbers)}
    computed = vectors(list(numbers))
    table = normalized(computed).astype(np.float32)
    by_column = zip(*(example.texts for example in examples), strict=True)
    columns = [np.array([places.get(text, -1) for text in column]) for column in by_column]
    labels = np.array([example.label for example in examples])
    if classify is not None:
        logits = np.asarray(classify(*(computed[column] for column in columns[:2])))
        return {"accuracy": accuracy(labels, logits.argmax(axis=-1))}
    if len(columns) == 1:
        _, first = np.unique(columns[0], return_index=True)
        return {"accuracy": _nearest_accuracy(table[columns[0][first]], labels[first])}
    cosines = [(table[columns[0]] * table[column]).sum(axis=-1) for column in columns[1:]]
    if examples[0].scores and len(columns) == 2:
        targets = np.array([example.scores[0] for example in examples])
        return {"pearson": pearson(targets, cosines[0]), "spearman": spearman(targets, cosines[0])}
    qrels: dict[int, dict[int, float]] = {}
    for example in examples:
        qrels.setdefault(example.numbers[0], {})[example.numbers[1]] = 1.0
    anchors = {example.numbers[0]: table[places[example.texts[0]]] for example in examples}
    candidates = np.unique(np.concatenate([column[column >= 0] for column in columns[1:]]))
    names = [list(numbers.values())[row] for row in candidates]
    of_triplets = [
        triplet_accuracy(cosines[0][column >= 0], of_column[column >= 0])
        for column, of_column in zip(columns[2:], cosines[1:], strict=True)
        if (column >= 0).any()
    ]
    return {
        **_ranking_scores(table[candidates], names, anchors, qrels),
        **({"triplet_accuracy": float(np.mean(of_triplets))} if of_triplets else {}),
    }


def retrieval(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, float]],
    vectors: Vectors,
) -> dict[str, float]:
    """Score the retrieval of a collection: documents, queries and judgments by their ids."""
    texts = list(dict.fromkeys((*queries.values(), *documents.values())))
    table = dict(zip(texts, normalized(vectors(texts)).astype(np.float32), strict=True))
    corpus = np.stack([table[text] for text in documents.values()])
    # Ids of queries and documents are independent of each other.
    names = [("document", name) for name in documents]
    judged = {query: {("document", name): gain for name, gain in of_query.items()} for query, of_query in qrels.items()}
    return _ranking_scores(corpus, names, {query: table[queries[query]] for query in qrels}, judged)


def _ranking_scores(
    corpus: np.ndarray, names: Sequence, queries: Mapping, qrels: Mapping[object, Mapping[object, float]]
) -> dict[str, float]:
    """Rank a corpus, float32 [N, D], with a name for each row, for queries, float32 [D] each.

    A query that is part of the corpus, under the same name, does not find itself.
    """
    rows, _ = nearest(corpus, np.stack(list(queries.values())), _DEPTH + 1)
    ranked = {
        query: [names[row] for row in of_query if names[row] != query or query in qrels[query]][:_DEPTH]
        for query, of_query in zip(queries, rows, strict=True)
    }
    return retrieval_scores(ranked, qrels)


def _nearest_accuracy(vectors: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of distinct texts, float32 [N, D], whose nearest other text has the same class."""
    found, _ = nearest(vectors, vectors, 2)
    others = np.where(found[:, 0] == np.arange(len(vectors)), found[:, 1], found[:, 0])
    return accuracy(labels, labels[others])
