"""`fill_mask`: print the most likely words for each [MASK] in a text."""

import sys
from typing import TYPE_CHECKING, ClassVar

from official_bert.commands.shared.models import ModelFiles, needs_tensorflow, prepare_model
from official_bert.options.command import Command
from official_bert.options.groups import ModelOptions
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.serving.engine_model import EngineModel


@options(group="output")
class FillMaskConfig(ModelOptions):
    exports_of: ClassVar[str | None] = "pretraining"

    text: str | None = option(None, "Text with one [MASK] for each masked wordpiece.", required=True)
    top_k: int = option(5, "Number of candidates to print for each mask.", minimum=1, maximum=MAX_AXIS)


def run(config: FillMaskConfig, model: "ModelFiles | EngineModel") -> None:
    from official_bert.tokenization import vocab

    tokenizer = model.tokenizer
    limit = model.bert_config.max_length if isinstance(model, ModelFiles) else model.said["max_seq_length"]
    parts = tokenizer.mask_pattern.split(config.text)
    if len(parts) == 1:
        raise UserError(f"the text has no {vocab.MASK}: {config.text!r}")
    num_wordpieces = sum(len(tokenizer.encode(part)) + 1 for part in parts) + 1  # one per mask, plus [CLS] and [SEP]
    if num_wordpieces > limit:
        raise UserError(f"the text has {num_wordpieces} wordpieces, but the model takes at most {limit}; shorten it")
    if isinstance(model, ModelFiles):
        from official_bert.inference.finished_runs import model_of
        from official_bert.tasks.pretraining.task import MaskTextModel, load_model

        loaded = load_model(model.bert_config, config.init_checkpoint, what="init_checkpoint")
        sizes = {"max_seq_length": limit, "top_k": config.top_k}
        model = model_of(MaskTextModel(loaded, loaded.config, tokenizer, **sizes))
    elif config.top_k > (most := model.outputs["text"]["probabilities"].shape[-1]):
        raise UserError(f"top_k={config.top_k}: the export has {most} words for each mask; export with export_top_k")
    (masks,) = model.results(model.answer({"text": [config.text]}))
    sys.stdout.write(f"{config.text}\n")
    for number, candidates in enumerate(masks, start=1):
        if len(masks) > 1:
            sys.stdout.write(f"{vocab.MASK} {number} of {len(masks)}:\n")
        for candidate in candidates[: config.top_k]:
            sys.stdout.write(f"  {candidate.word:<20} {candidate.probability:.4f}\n")


COMMAND = Command(
    config_class=FillMaskConfig,
    summary="Fills in masked words with a pretrained checkpoint.",
    usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt \
      --init_checkpoint=bert_model.ckpt --text="the baker puts the [MASK] into the oven ."
""",
    prepare=prepare_model,
    run=run,
    uses_tensorflow=needs_tensorflow,
)
