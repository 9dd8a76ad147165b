r"""Answers questions about a text with a model that run_squad.py trained.

  python tools/answer.py --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=out/squad \
      --context_file=letters.txt --question="Who keeps the bees?"

Without --question, questions are read from standard input, one a line, and answered as they come.
"""

from official_bert.config.run_configs import AnswerConfig
from official_bert.script import run_script


def main(config: AnswerConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import answering  # imports TensorFlow; --help must not

    answering.run(config)


if __name__ == "__main__":
    run_script(AnswerConfig, main)
