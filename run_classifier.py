r"""Fine-tunes BERT to classify sentences or pairs of sentences, evaluates it, and predicts.

python run_classifier.py --task_name=mrpc --data_dir=MRPC --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
"""

from official_bert.config.run_configs import ClassifierConfig
from official_bert.script import run_script


def main(config: ClassifierConfig) -> None:
    """Runs the script."""
    from official_bert.runs import classifier  # imports TensorFlow; --help must not

    classifier.run(config)


if __name__ == "__main__":
    run_script(ClassifierConfig, main)
