"""Evaluation of sentence vectors: correlation with gold scores, retrieval, and accuracy on triplets and classes."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from official_bert.metrics.classification import accuracy, pearson, spearman
from official_bert.metrics.retrieval import retrieval_scores, triplet_accuracy
from official_bert.metrics.similarity import nearest, normalized
from official_bert.tasks.sentence_encoder.examples import Example

_DEPTH = 10  # ranks

Vectors = Callable[[Sequence[str]], np.ndarray]
"""A function that maps N distinct texts to their vectors, float32 [N, D]."""


def primary_metric(examples: Sequence[Example], loss: str) -> str:
    """Return the name of the score that selects the best checkpoint."""
    if examples[0].scores and len(examples[0].texts) == 2:
        return "spearman"
    if loss == "softmax" or len(examples[0].texts) == 1:
        return "accuracy"
    return "mrr@10"


def scores(
    examples: Sequence[Example], vectors: Vectors, classify: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
) -> dict[str, float]:
    """Evaluate sentence vectors on examples of one kind.

    Args:
      examples: scored pairs, to correlate cosine similarities with the scores; anchors with positives and optional
        negatives, to retrieve the positives among all other texts; anchors with several scored candidates, of which the
        best one is the positive; single texts with classes, to predict the class of each text from its nearest
        neighbour; or pairs with classes, to classify.
      vectors: computes the vectors.
      classify: maps the vectors of the pairs, float32 [N, D] twice, to logits, float32 [N, C]; None if the model has no
        classifier.

    Returns:
      The scores by name: pearson and spearman for scored pairs; recall@1, recall@10, mrr@10 and ndcg@10 for anchors,
      and triplet_accuracy if there are negatives; accuracy for classes.
    """
    examples = [_best_first(example) for example in examples]
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
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, float]],
    vectors: Vectors,
) -> dict[str, float]:
    """Evaluate retrieval on a collection, whose queries, documents and judgments are keyed by id."""
    texts = list(dict.fromkeys((*queries.values(), *documents.values())))
    table = dict(zip(texts, normalized(vectors(texts)).astype(np.float32), strict=True))
    corpus = np.stack([table[text] for text in documents.values()])
    # A query and a document may have the same id.
    names = [("document", name) for name in documents]
    judged = {query: {("document", name): gain for name, gain in of_query.items()} for query, of_query in qrels.items()}
    return _ranking_scores(corpus, names, {query: table[queries[query]] for query in qrels}, judged)


def _ranking_scores(
    corpus: np.ndarray, names: Sequence, queries: Mapping, qrels: Mapping[object, Mapping[object, float]]
) -> dict[str, float]:
    """Rank the rows of a corpus, float32 [N, D], for each query, float32 [D], and score the rankings.

    `names` names the rows. A query that is in the corpus under its own name is left out of its ranking.
    """
    rows, _ = nearest(corpus, np.stack(list(queries.values())), _DEPTH + 1)
    ranked = {
        query: [names[row] for row in of_query if names[row] != query or query in qrels[query]][:_DEPTH]
        for query, of_query in zip(queries, rows, strict=True)
    }
    return retrieval_scores(ranked, qrels)


def _nearest_accuracy(vectors: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of the vectors, float32 [N, D], whose nearest neighbour has the same class."""
    found, _ = nearest(vectors, vectors, 2)
    others = np.where(found[:, 0] == np.arange(len(vectors)), found[:, 1], found[:, 0])
    return accuracy(labels, labels[others])
