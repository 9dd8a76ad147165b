"""Speed of three sentence splitters, and their results for some difficult sentences in ten languages.

  python benchmarks/sentence_splitting.py --text books/*.txt

The splitters are that of `official-bert split_sentences` (blingfire with additions), syntok and pysbd.
Speed is text per second of processor time, in one process, one paragraph per call, without loading. Only pysbd gets the
language as an argument, if it supports it.
"""

import argparse
import functools
import pathlib
import statistics
import time

import pysbd
import pysbd.languages
from syntok import segmenter

from official_bert.data.corpus_files import split_sentences

ROUNDS = 3
LARGEST_SAMPLE = {"pysbd": 200_000}  # characters: it is slow
# Each text is a list of sentences, joined with a space, or without one in Chinese and Japanese.
TRICKY = {
    "en": [
        "Mr. Smith went to Washington, D.C. on Jan. 5th.",
        "It cost $3.50!",
        "See e.g. Fig. 3.",
        '"Why?" she asked.',
    ],
    "de": ["Am 3. Mai kam z.B. Dr. Müller.", "Er sagte: „Das geht nicht.“", "Dann ging er."],
    "ko": ["오늘은 날씨가 좋다.", "내일은 비가 올까?", "기온이 3.5도 내려간다고 한다."],
    "zh": ["今天天气很好。", "明天会下雨吗？", "他说：“你好。”", "他走了！"],
    "ja": ["今日は天気がいい。", "明日は雨ですか？", "「はい。」と彼は言った。"],
    "ar": ["هذا كتاب.", "هل قرأته؟", "نعم!"],
    "hi": ["यह किताब है।", "क्या तुमने पढ़ी?", "हाँ।"],
    "es": ["¿Qué pasa?", "El Sr. García llegó.", "Sí."],
    "ru": ["В 1990 г. он приехал в г. Москва.", "Потом уехал."],
    "fr": ["M. Dupont est arrivé à 3 h.", "Il a dit : « Non. »", "Puis il est parti."],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, nargs="+", help="UTF-8 text files, blank lines between paragraphs")
    flags = parser.parse_args()
    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in flags.text]
    paragraphs = [" ".join(one.split()) for text in texts for one in text.split("\n\n") if one.strip()]
    num_characters = sum(map(len, paragraphs))
    print(f"Sentence splitting: {num_characters / 1e6:.1f} million characters, {len(paragraphs):,} paragraphs")
    splitters = {"blingfire": our_split, "syntok": syntok_split, "pysbd": pysbd_split}
    for name, split in splitters.items():
        measure(name, split, sample(paragraphs, LARGEST_SAMPLE.get(name, num_characters)))
    for language, sentences in TRICKY.items():
        text = ("" if language in ("zh", "ja") else " ").join(sentences)
        for name, split in splitters.items():
            found = split(text, language)
            print(f"  {language}  {name:<10} {'as expected' if found == sentences else ' | '.join(found)}")


def sample(paragraphs: list[str], num_characters: int) -> list[str]:
    """Return every n-th paragraph, with about `num_characters` characters at most."""
    return paragraphs[:: -(-sum(map(len, paragraphs)) // num_characters)]


def measure(name: str, split, paragraphs: list[str]) -> None:
    num_bytes = sum(len(paragraph.encode()) for paragraph in paragraphs)
    split(paragraphs[0], "en")
    rates = []
    for _ in range(ROUNDS):
        began = time.process_time()
        num_sentences = sum(len(split(paragraph, "en")) for paragraph in paragraphs)
        rates.append(num_bytes / 1e6 / (time.process_time() - began))
    print(
        f"  {name:<10} {statistics.median(rates):>8.2f} MB/s   (rounds: {min(rates):.2f} to {max(rates):.2f}), "
        f"{num_sentences / num_bytes * 1e3:.2f} sentences per kB",
        flush=True,
    )


def our_split(text: str, language: str) -> list[str]:
    return split_sentences(text)


def syntok_split(text: str, language: str) -> list[str]:
    found = (sentence for paragraph in segmenter.process(text) for sentence in paragraph)
    return ["".join(token.spacing + token.value for token in sentence).strip() for sentence in found]


def pysbd_split(text: str, language: str) -> list[str]:
    return [sentence.strip() for sentence in pysbd_segmenter(language).segment(text)]


@functools.cache
def pysbd_segmenter(language: str) -> pysbd.Segmenter:
    known = language if language in pysbd.languages.LANGUAGE_CODES else "en"
    return pysbd.Segmenter(language=known, clean=False)


if __name__ == "__main__":
    main()
