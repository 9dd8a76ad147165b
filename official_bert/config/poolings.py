"""The table of poolings: from the vectors of a text's wordpieces to one vector of the text."""

from collections.abc import Iterable
from typing import NamedTuple

from official_bert.config.sentence_modules import MODEL, SPLADE

SECOND_TO_LAST, SUM_LAST_FOUR, CONCAT_LAST_FOUR = "second_to_last", "sum_last_four", "concat_last_four"
POOLER, BM25 = "pooler", "bm25"

# The users of poolings.
EMBED = "embed"  # `Predictor.embed` and beam_predict
HEAD = "head"  # a sentence encoder, and its export
LAYER = "layer"  # the vectors of any layer, in extract_features and sentence_similarity
_ALL, _LAST_FOUR = (EMBED, HEAD, LAYER), (-4, -3, -2, -1)


class Pooling(NamedTuple):
    help: str
    users: tuple[str, ...] = ()
    layers: tuple[int, ...] = (-1,)
    of_layer: str | None = None  # the pooling of each layer, if it is another


POOLINGS = {
    "cls": Pooling("the vector of [CLS]", _ALL),
    "mean": Pooling("the mean over the wordpieces, including [CLS] and [SEP]", _ALL),
    "mean_no_special": Pooling("the mean without [CLS] and [SEP]", (LAYER,)),
    "max": Pooling("the maximum over the wordpieces, including [CLS] and [SEP]", _ALL),
    "max_no_special": Pooling("the maximum without [CLS] and [SEP]", (LAYER,)),
    BM25: Pooling("a mean without [CLS] and [SEP] in which rare wordpieces weigh more"),
    POOLER: Pooling("the pooled output, trained on pairs of sentences", (EMBED,)),
    SECOND_TO_LAST: Pooling("the mean of the second to last layer", (EMBED, HEAD), (-2,), "mean"),
    SUM_LAST_FOUR: Pooling("the sum of the means of the last four layers", (EMBED, HEAD), _LAST_FOUR, "mean"),
    CONCAT_LAST_FOUR: Pooling("the means of the last four layers", (EMBED, HEAD), _LAST_FOUR, "mean"),
    "mean_sqrt_len_tokens": Pooling("the sum divided by the square root of the number", (HEAD,)),
    "weightedmean": Pooling("a mean with the weights 1, 2, 3, ...", (HEAD,)),
    "lasttoken": Pooling("the vector of [SEP]", (HEAD,)),
    SPLADE: Pooling("a weight for each wordpiece of the vocabulary, from the masked-LM head", (EMBED, HEAD)),
    MODEL: Pooling("as specified by a sentence-transformers folder or a run of run_sentence_encoder", (EMBED,)),
}


def poolings_of(user: str) -> tuple[str, ...]:
    return tuple(name for name, pooling in POOLINGS.items() if user in pooling.users)


def pooling_help(names: Iterable[str]) -> str:
    return "The vector of a text. " + "; ".join(f"{name}: {POOLINGS[name].help}" for name in names) + "."
