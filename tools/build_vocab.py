r"""Learns a wordpiece vocabulary from text.

python tools/build_vocab.py --input_file=corpus.txt --vocab_file=vocab.txt --vocab_size=8000
"""

from official_bert.config.run_configs import VocabConfig
from official_bert.script import run_script


def main(config: VocabConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import vocab_building  # imports TensorFlow; --help must not

    vocab_building.run(config)


if __name__ == "__main__":
    run_script(VocabConfig, main)
