r"""Fills in masked words with a pretrained checkpoint.

  python tools/fill_mask.py --bert_config_file=bert_config.json --vocab_file=vocab.txt \
      --init_checkpoint=bert_model.ckpt --text="the baker puts the [MASK] into the oven ."
"""

from official_bert.config.run_configs import FillMaskConfig
from official_bert.script import run_script


def main(config: FillMaskConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import mask_filling  # imports TensorFlow; --help must not

    mask_filling.run(config)


if __name__ == "__main__":
    run_script(FillMaskConfig, main)
