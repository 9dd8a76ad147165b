"""A plain version of SQuAD's evaluate-v2.0.py; shares no code with the library.

Dictionaries keep their order, which decides ties between odds; numbers are added one by one, like `sum` before Python
3.12.
"""

import string
from collections import Counter

ARTICLES = ("a", "an", "the")


def counted(text):
    """Normalize a text, here only of ASCII words between spaces."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ARTICLES)


def plain_exact(gold, text):
    return 1 if counted(gold) == counted(text) else 0


def plain_f1(gold, text):
    gold_words, words = counted(gold).split(), counted(text).split()
    if not gold_words or not words:
        return 1 if gold_words == words else 0
    common = 0
    for word, number in Counter(words).items():
        common += min(number, gold_words.count(word))
    if common == 0:
        return 0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def mean_percent(scores):
    total = 0
    for score in scores:
        total += score
    return 100.0 * total / len(scores)


def plain_best(golds, texts, odds, scores):
    """Return the best score of any threshold, and that threshold."""
    score = len([question for question in golds if not golds[question]])
    best, threshold = score, 0.0
    for question in sorted(odds, key=odds.get):
        if question not in scores:
            continue
        if golds[question]:
            score += scores[question]
        elif texts[question] != "":
            score -= 1
        if score > best:
            best, threshold = score, odds[question]
    return 100.0 * best / len(scores), threshold


def plain_squad_2(golds, texts, odds=None, threshold=1.0):
    """Return all scores that the script prints.

    Args:
      golds: question to right texts; empty if unanswerable.
      texts: question to prediction.
      odds: question to the probability of no answer, if given.
      threshold: probabilities above it count as predictions of no answer.
    """
    results, best = {}, {}
    for name, score_of in (("exact", plain_exact), ("f1", plain_f1)):
        scores, thresholded = {}, {}
        for question, answers in golds.items():
            if question in texts:
                real = [answer for answer in answers if counted(answer)] or [""]
                scores[question] = max(score_of(answer, texts[question]) for answer in real)
        for question, score in scores.items():
            is_null = odds is not None and odds[question] > threshold
            thresholded[question] = (0.0 if golds[question] else 1.0) if is_null else score
        results[name] = mean_percent(list(thresholded.values()))
        results["total"] = len(thresholded)
        for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
            part = [question for question in golds if bool(golds[question]) == has_answer]
            if part:
                results[prefix + name] = mean_percent([thresholded[question] for question in part])
                results[prefix + "total"] = len(part)
        if odds is not None:
            best["best_" + name], best[f"best_{name}_thresh"] = plain_best(golds, texts, odds, scores)
    return results | best
