"""A plain version of the rules for SQuAD: slow, but easy to check.

The tests and the benchmark compare the library's windows and answers with these. It shares no code with it.
"""

import math

from tests.tokenization.plain_tokenizer import plain_pieces, plain_words


def plain_context_words(context):
    """Split a context into words; also return for each character the last word begun, -1 before the first."""
    words, word_of_character, is_open = [], [], False
    for character in context:
        if character in " \t\r\n\u202f":
            is_open = False
        elif is_open:
            words[-1] += character
        else:
            words.append(character)
            is_open = True
        word_of_character.append(len(words) - 1)
    return words, word_of_character


def plain_features(content, vocab, settings, *, max_seq_length, doc_stride, max_query_length, for_training, version_2):
    """Create the features of every question in a SQuAD file's content, in order."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                words, word_of_character = plain_context_words(paragraph["context"])
                is_impossible = for_training and version_2 and entry["is_impossible"]
                answer_words = None
                if for_training and not is_impossible:
                    text, start = entry["answers"][0]["text"], entry["answers"][0]["answer_start"]
                    answer_words = word_of_character[start], word_of_character[start + len(text) - 1]
                wordpieces, word_of_piece, first_piece_of_word = [], [], []
                for number, word in enumerate(words):
                    first_piece_of_word.append(len(wordpieces))
                    for piece in plain_pieces(word, vocab, settings):
                        wordpieces.append(piece)
                        word_of_piece.append(number)
                first_piece_of_word.append(len(wordpieces))
                answer = None
                if answer_words:
                    answer = first_piece_of_word[answer_words[0]], first_piece_of_word[answer_words[1] + 1] - 1
                    wanted = plain_pieces(text, vocab, settings)
                    answer = plain_better_span(wordpieces, *answer, wanted)
                query = plain_pieces(entry["question"], vocab, settings)[:max_query_length]
                spans = plain_spans(len(wordpieces), max_seq_length - len(query) - 3, doc_stride)
                for number, (start, length) in enumerate(spans):
                    tokens = ["[CLS]", *query, "[SEP]", *wordpieces[start : start + length], "[SEP]"]
                    offset = len(query) + 2
                    positions = 0, 0
                    if answer and answer[0] >= start and answer[1] < start + length:
                        positions = answer[0] - start + offset, answer[1] - start + offset
                    yield {
                        "id": entry["id"],
                        "words": words,
                        "tokens": tokens,
                        "input_ids": [vocab[token] for token in tokens],
                        "segment_ids": [0] * offset + [1] * (length + 1),
                        "word_of_position": {offset + i: word_of_piece[start + i] for i in range(length)},
                        "is_max_context": {
                            offset + i: plain_best_span(spans, start + i) == number for i in range(length)
                        },
                        "start_position": positions[0],
                        "end_position": positions[1],
                        "is_impossible": is_impossible,
                    }


def plain_spans(num_wordpieces, max_tokens, stride):
    """Return start and length of each window over the pieces of a context."""
    spans, start = [], 0
    while start < num_wordpieces:
        length = min(max_tokens, num_wordpieces - start)
        spans.append((start, length))
        if start + length == num_wordpieces:
            break
        start += min(length, stride)
    return spans


def plain_best_span(spans, place):
    """Return the window with the most context around a piece."""
    best, best_score = None, None
    for number, (start, length) in enumerate(spans):
        if start <= place < start + length:
            score = min(place - start, start + length - 1 - place) + 0.01 * length
            if best is None or score > best_score:
                best, best_score = number, score
    return best


def plain_better_span(wordpieces, first, last, wanted):
    """Search for exactly the wanted pieces in a range."""
    for start in range(first, last + 1):
        for end in range(last, start - 1, -1):
            if wordpieces[start : end + 1] == wanted:
                return start, end
    return first, last


def plain_answers(features, start_logits, end_logits, settings, *, n_best_size, max_answer_length, version_2):
    """Rank the answers of one question; return text and logits of each, and the null odds.

    The logits are lists of Python floats, one list per feature.
    """
    candidates = []
    for feature, starts, ends in zip(features, start_logits, end_logits, strict=True):
        for start in plain_best_places(starts)[:n_best_size]:
            for end in plain_best_places(ends)[:n_best_size]:
                is_inside = start in feature["word_of_position"] and end in feature["word_of_position"]
                if is_inside and feature["is_max_context"][start] and start <= end < start + max_answer_length:
                    candidates.append((starts[start], ends[end], feature, start, end))
    if version_2:
        nulls = [(starts[0], ends[0]) for starts, ends in zip(start_logits, end_logits, strict=True)]
        null = min(nulls, key=sum)
        candidates.append((*null, None, 0, 0))
    candidates.sort(key=lambda candidate: candidate[0] + candidate[1], reverse=True)
    entries = []
    for start_logit, end_logit, feature, start, end in candidates:
        if len(entries) == n_best_size:
            break
        text = ""
        if feature:
            text = plain_final_text(feature, start, end, settings)
            if any(entry[0] == text for entry in entries):
                continue
        entries.append((text, start_logit, end_logit))
    if version_2 and not any(entry[0] == "" for entry in entries):
        entries.append(("", *null))
    if not entries:
        entries.append(("empty", 0.0, 0.0))
    total = 0.0
    for _, start_logit, end_logit in entries:
        total += math.exp(start_logit + end_logit - (entries[0][1] + entries[0][2]))
    ranked = []
    for text, start_logit, end_logit in entries:
        share = math.exp(start_logit + end_logit - (entries[0][1] + entries[0][2]))
        ranked.append((text, share / total, start_logit, end_logit))
    real = [entry for entry in entries if entry[0]]
    odds = sum(null) - real[0][1] - real[0][2] if version_2 and real else None
    return ranked, odds


def plain_best_places(logits):
    """Return positions by descending logit, ties in order."""
    return [place for _, place in sorted((-logit, place) for place, logit in enumerate(logits))]


def plain_final_text(feature, start, end, settings):
    """Find the predicted text in the words of the context."""
    original = " ".join(feature["words"][feature["word_of_position"][start] : feature["word_of_position"][end] + 1])
    predicted = " ".join(" ".join(feature["tokens"][start : end + 1]).replace(" ##", "").replace("##", "").split())
    tokenized = " ".join(plain_words(original, settings))
    if predicted not in tokenized or len(tokenized.replace(" ", "")) != len(original.replace(" ", "")):
        return original
    begin = tokenized.index(predicted)
    num_before, num_inside = len(tokenized[:begin].replace(" ", "")), len(predicted.replace(" ", ""))
    places = [place for place in range(len(original)) if original[place] != " "]
    return original[places[num_before] : places[num_before + num_inside - 1] + 1]
