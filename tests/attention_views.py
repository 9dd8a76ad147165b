"""Generated attention, for tests of its visualization."""

import numpy as np

from official_bert.visualization.attention import AttentionView

HOSTILE = (
    "<img src=x onerror=document.title='owned'> </script><script>document.title='owned'</script> <!--<script> "
    "{{policy}} {{data}} \u2028 \\u003c & &lt; \"'` $& $1"
)


def make_view(
    *, num_layers=3, num_heads=4, num_words=9, word="harbour", notes=(), guess="the", has_predictions=True
) -> AttentionView:
    """Return random attention of a pair: each third word has two pieces, and the first word is given."""
    rng = np.random.default_rng(1)
    tokens, segments, words, indices = ["[CLS]"], [0], ["[CLS]"], [0]

    def end_text(segment):
        tokens.append("[SEP]")
        segments.append(segment)
        indices.append(len(words))
        words.append("[SEP]")

    for number in range(num_words):
        text = word if number == 0 else f"word{number}"
        wordpieces = [text, "##s"] if number % 3 == 1 else [text]
        segment = int(number >= num_words // 2)
        if segment and not segments[-1]:
            end_text(0)
        tokens += wordpieces
        segments += [segment] * len(wordpieces)
        indices += [len(words)] * len(wordpieces)
        words.append(text + "s" * (len(wordpieces) - 1))
    end_text(1)
    scores = np.exp(3 * rng.standard_normal([num_layers, num_heads, len(tokens), len(tokens)]))
    attention = (scores / scores.sum(axis=-1, keepdims=True)).astype(np.float32)
    guesses = [(guess, 0.5), *((f"guess{number}", 0.1 - number / 100) for number in range(4))]
    predictions = [None if token in ("[CLS]", "[SEP]") else guesses for token in tokens]
    return AttentionView(
        tokens=tokens, segment_ids=segments, words=words, word_indices=indices, attention=attention,
        predictions=predictions if has_predictions else None, notes=list(notes),
    )  # fmt: skip
