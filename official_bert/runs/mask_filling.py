"""`tools/fill_mask.py`: text with [MASK] in, the likeliest words out, on standard output."""

import sys

from official_bert.checkpoints.loading import load_initial
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs import FillMaskConfig
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tasks.mask_filling import MaskFiller
from official_bert.tokenization import FullTokenizer, vocab


def run(config: FillMaskConfig) -> None:
    """Prints the best words for each mask.

    Raises:
      UserError: a file does not fit the others, or the text has no [MASK] or is too long.
    """
    model = PretrainingModel(BertConfig.from_json_file(config.bert_config_file))
    load_initial(
        config.init_checkpoint,
        model.trainable_variables,
        required=lambda name: name.startswith(("bert/", "cls/predictions/")),
    )
    tokenizer = FullTokenizer(vocab_file=config.vocab_file, do_lower_case=config.do_lower_case)
    masks = MaskFiller(model, tokenizer).fill(config.text, config.top_k)
    sys.stdout.write(f"{config.text}\n")
    for number, candidates in enumerate(masks, start=1):
        if len(masks) > 1:
            sys.stdout.write(f"{vocab.MASK} {number} of {len(masks)}:\n")
        for candidate in candidates:
            sys.stdout.write(f"  {candidate.piece:<20} {candidate.probability:.4f}\n")
