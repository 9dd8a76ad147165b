r"""Fine-tunes BERT to answer questions from a text, and answers those of a file.

python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_predict
"""

from official_bert.config.run_configs import SquadConfig
from official_bert.script import run_script


def main(config: SquadConfig) -> None:
    """Runs the script."""
    from official_bert.runs import squad  # imports TensorFlow; --help must not

    squad.run(config)


if __name__ == "__main__":
    run_script(SquadConfig, main)
