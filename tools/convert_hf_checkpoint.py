r"""Turns a Hugging Face BERT into a checkpoint for these scripts, or a checkpoint into a Hugging Face BERT.

Reads config.json, model.safetensors and vocab.txt; writes bert_model.ckpt, bert_config.json and vocab.txt:

  python tools/convert_hf_checkpoint.py --hf_dir=all-MiniLM-L6-v2 --output_dir=minilm

The other way, from a checkpoint of these scripts or of the first BERT release:

  python tools/convert_hf_checkpoint.py --to_hf --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=hf
"""

from official_bert.config.run_configs import HfConversionConfig
from official_bert.script import run_script


def main(config: HfConversionConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import hf_conversion  # imports TensorFlow; --help must not

    hf_conversion.run(config)


if __name__ == "__main__":
    run_script(HfConversionConfig, main)
