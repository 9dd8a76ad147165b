r"""Pretrains BERT on records of create_pretraining_data.py: masked words and next sentences.

python run_pretraining.py --input_file=records.tfrecord --output_dir=out --bert_config_file=bert_config.json \
      --do_train --do_eval
"""

from official_bert.config.run_configs import PretrainingConfig
from official_bert.script import run_script


def main(config: PretrainingConfig) -> None:
    """Runs the script."""
    from official_bert.runs import pretraining  # imports TensorFlow; --help must not

    pretraining.run(config)


if __name__ == "__main__":
    run_script(PretrainingConfig, main)
