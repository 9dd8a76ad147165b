r"""Copies a checkpoint without what only training needs: optimizer slots and the step. A third of the size remains.

python tools/strip_checkpoint.py --checkpoint=out/model.ckpt-1000 --output=bert_model.ckpt
"""

from official_bert.config.run_configs import StripCheckpointConfig
from official_bert.script import run_script


def main(config: StripCheckpointConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import checkpoint_stripping  # imports TensorFlow; --help must not

    checkpoint_stripping.run(config)


if __name__ == "__main__":
    run_script(StripCheckpointConfig, main)
