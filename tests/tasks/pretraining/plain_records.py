"""A plain version of making pretraining records: token strings, lists, TensorFlow's Example.

The tests compare the library's records with these, and the benchmark its speed. It shares no code with the library.
"""

import itertools
import random

import tensorflow as tf

from official_bert.config.text_settings import TextSettings
from tests.tokenization.plain_tokenizer import plain_pieces


def plain_records(lines, vocab, flags):
    """Make the records of a text, given as lines, in their final order; `flags` are those of the command."""
    settings = TextSettings(*(flags[name] for name in TextSettings._fields))
    return records_of_documents(read_documents(lines, vocab, settings), vocab, flags)


def read_documents(lines, vocab, settings):
    """Split a text into documents, each a list of sentences, each a list of pieces."""
    documents = [[]]
    for line in lines:
        line = line.strip()
        if not line:
            documents.append([])
        wordpieces = plain_pieces(line, vocab, settings)
        if wordpieces:
            documents[-1].append(wordpieces)
    return [document for document in documents if document]


def records_of_documents(documents, vocab, flags):
    """Make the records of documents; `documents` is shuffled in place."""
    rng = random.Random(flags["random_seed"])
    rng.shuffle(documents)
    instances = []
    for _ in range(flags["dupe_factor"]):
        for document in documents:
            instances += plain_instances(document, documents, list(vocab), flags, rng)
    rng.shuffle(instances)
    return [serialize(instance, vocab, flags) for instance in instances]


def plain_instances(document, documents, words, flags, rng):
    """Cut one document into masked sentence pairs."""
    max_tokens = flags["max_seq_length"] - 3
    target = max_tokens
    if rng.random() < flags["short_seq_prob"]:
        target = rng.randint(2, max_tokens)
    instances = []
    waiting = list(document)
    while waiting:
        chunk = [waiting.pop(0)]
        while waiting and sum(map(len, chunk)) < target:
            chunk.append(waiting.pop(0))
        cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first, rest = list(itertools.chain(*chunk[:cut])), chunk[cut:]
        is_random = not rest or rng.random() < 0.5
        if is_random:
            waiting = rest + waiting
            second = random_sentences(document, documents, target - len(first), rng)
        else:
            second = list(itertools.chain(*rest))
        while len(first) + len(second) > max_tokens:
            longer = first if len(first) > len(second) else second
            longer.pop(0 if rng.random() < 0.5 else -1)
        instances.append((first, second, is_random, *plain_masking(first, second, words, flags, rng)))
    return instances


def random_sentences(document, documents, target, rng):
    """Take sentences from a random position in another document until there are enough pieces."""
    for _ in range(10):
        other = documents[rng.randint(0, len(documents) - 1)]
        if other is not document:
            break
    wordpieces = []
    for sentence in other[rng.randint(0, len(other) - 1) :]:
        wordpieces += sentence
        if len(wordpieces) >= target:
            break
    return wordpieces


def plain_masking(first, second, words, flags, rng):
    """Mask pieces: return the masked sequence, and (position, true piece) of the masked ones."""
    tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    groups = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if flags["do_whole_word_mask"] and groups and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
    rng.shuffle(groups)
    wanted = min(flags["max_predictions_per_seq"], max(1, round(len(tokens) * flags["masked_lm_prob"])))
    output, hidden = list(tokens), []
    for group in groups:
        if len(hidden) + len(group) > wanted:
            continue
        for position in group:
            hidden.append((position, tokens[position]))
            mask, other = flags.get("mask_replace_prob", 0.8), flags.get("random_replace_prob", 0.1)
            if rng.random() < mask:
                output[position] = "[MASK]"
            elif rng.random() >= round(1 - other / (1 - mask), 12):
                output[position] = words[rng.randint(0, len(words) - 1)]
    return output, sorted(hidden)


def serialize(instance, vocab, flags):
    """Serialize an instance as an Example."""
    first, second, is_random, tokens, hidden = instance

    def integers(values, length):
        values = list(values) + [0] * (length - len(values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    length, slots = flags["max_seq_length"], flags["max_predictions_per_seq"]
    weights = [1.0] * len(hidden) + [0.0] * (slots - len(hidden))
    features = {
        "input_ids": integers([vocab[token] for token in tokens], length),
        "input_mask": integers([1] * len(tokens), length),
        "segment_ids": integers([0] * (len(first) + 2) + [1] * (len(second) + 1), length),
        "masked_lm_positions": integers([position for position, _ in hidden], slots),
        "masked_lm_ids": integers([vocab[token] for _, token in hidden], slots),
        "masked_lm_weights": tf.train.Feature(float_list=tf.train.FloatList(value=weights)),
        "next_sentence_labels": integers([int(is_random)], 1),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
