r"""Makes TFRecord files for BERT pretraining from text.

The text has one sentence a line and a blank line between documents.

  python create_pretraining_data.py --input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt
"""

from official_bert.config.run_configs import PretrainingDataConfig
from official_bert.script import run_script


def main(config: PretrainingDataConfig) -> None:
    """Runs the script."""
    from official_bert.runs import pretraining_data  # imports TensorFlow; --help must not

    pretraining_data.run(config)


if __name__ == "__main__":
    run_script(PretrainingDataConfig, main)
