"""Fraction of unknown wordpieces in a text under each text setting, for a vocabulary.

  python benchmarks/unknown_share.py --text reviews.txt --vocab_file vocab.txt

Unlike the scripts, it also lowercases for a cased vocabulary, to show the effect.
"""

import argparse
import pathlib

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import FullTokenizer, Vocabulary

WAYS = {
    "--do_lower_case (the default)": TextSettings(),
    "--do_lower_case --strip_accents=false": TextSettings(strip_accents=False),
    "--nodo_lower_case": TextSettings(do_lower_case=False),
    "--nodo_lower_case --basic_tokenize=false": TextSettings(do_lower_case=False, basic_tokenize=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 text files, one text per line")
    parser.add_argument("--vocab_file", required=True, help="a vocabulary")
    flags = parser.parse_args()
    texts = [pathlib.Path(path).read_text(encoding="utf-8") for path in flags.text]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    vocabulary = Vocabulary.from_file(flags.vocab_file)
    print(f"{len(lines):,} lines, a vocabulary of {vocabulary.size:,}")
    print(f"{'':<42}{'[UNK]':>8}  wordpieces  first line with a word")
    for name, settings in WAYS.items():
        tokenizer = FullTokenizer(vocabulary, **settings._asdict())
        num_wordpieces = num_unknown = 0
        for line in lines:
            ids = tokenizer.encode(line)
            num_wordpieces += len(ids)
            num_unknown += ids.count(tokenizer.unk_id)
        example = " ".join(tokenizer.tokenize(lines[0])[:8])
        print(f"{name:<42}{num_unknown / max(num_wordpieces, 1):>8.2%}  {num_wordpieces:>10,}  {example}")


if __name__ == "__main__":
    main()
