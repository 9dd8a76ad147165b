"""`view_attention`: show the attention of each head for a text, as a page, image or numbers."""

import dataclasses
import json

from absl import logging

from official_bert.commands.shared.models import ModelFiles, prepare_model
from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.groups import ModelOptions
from official_bert.options.option import MAX_AXIS, option, options
from official_bert.support import writing
from official_bert.support.errors import UserError, check_installed


@options(group="output")
class AttentionConfig(ModelOptions):
    text: str | None = option(None, "First text: a sentence, or a question.", required=True)
    text_b: str | None = option(None, "Second text: another sentence, or the context of the question.", group="input")
    output_file: str | None = option(None, "File to write.", required=True, is_output=True)
    format: str = option(
        "html",
        "html: a self-contained page; json: all numbers, exactly; png: an image of the head that --layer "
        "and --head choose, or of all heads.",
        choices=("html", "json", "png"),
    )
    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces, including [CLS] and [SEP]; longer texts are truncated, also to the maximum "
        "length of the model.",
        group="text",
        minimum=5,
        maximum=MAX_AXIS,
    )
    layer: int | None = option(
        None, "Layer of the head that the page shows first, or that the image shows: 0 is the first, -1 the last."
    )
    head: int | None = option(None, "Number of the head in its layer, from 0.")
    merge_words: bool = option(
        False, "Merge wordpieces to words: in the image, initially in the page, and additionally in the JSON."
    )
    top_k: int = option(
        5, "Number of words to predict at each position, with a pretrained checkpoint.", minimum=1, maximum=MAX_AXIS
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("text", "text_b"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise UserError(f"--{name} is empty; give a text (was a shell variable not set?)")
        if self.format == "json":
            self.refuse("layer", "head", because="needs --format=html or png")
        if (self.layer is None) != (self.head is None):
            given, missing = ("layer", "head") if self.head is None else ("head", "layer")
            raise UserError(f"--{given} needs --{missing}; give both, or neither")


def prepare(config: AttentionConfig) -> ModelFiles:
    limit = BertConfig.from_json_file(config.bert_config_file).max_length  # longer texts are truncated
    model = prepare_model(dataclasses.replace(config, max_seq_length=min(config.max_seq_length, limit)))
    model.bert_config.check_head(config.layer or 0, config.head or 0, config.bert_config_file)
    if config.format == "png":
        check_installed("matplotlib", extra="plots")
    return model


def run(config: AttentionConfig, model_files: ModelFiles) -> None:
    from official_bert.inference import finished_runs
    from official_bert.inference.attention_reader import EXPLAINED, AttentionReader
    from official_bert.modeling.encoder_options import PLAIN
    from official_bert.visualization import attention

    bert_config, tokenizer = model_files
    explained = None
    finished = finished_runs.find_run(config.init_checkpoint) if config.format != "png" else None
    if finished and finished.task.name in EXPLAINED:
        trained = finished_runs.read_trained(finished, use_best_checkpoint=False, changes={}, encoder_options=PLAIN)
        explained = finished.task.servable_module.servable_of_run(trained)
    read = AttentionReader(bert_config, tokenizer, config.init_checkpoint, top_k=config.top_k, explained=explained)
    view = read(config.text, config.text_b, max_seq_length=config.max_seq_length)
    chosen = None
    if config.layer is not None:
        chosen = {"layer": config.layer % bert_config.num_layers, "head": config.head % bert_config.num_attention_heads}
    with writing.atomic_write(config.output_file, "wb") as sink:
        if config.format == "json":
            sink.write(json.dumps(attention.as_json(view, merges_words=config.merge_words)).encode())
        elif config.format == "html":
            first = chosen or {"layer": 0, "head": 0}
            sink.write(attention.page(view, **first, merges_words=config.merge_words).encode())
        elif chosen:
            attention.draw_head(view, sink, **chosen, merges_words=config.merge_words)
        else:
            attention.draw_overview(view, sink, merges_words=config.merge_words)
    num_layers, num_heads, length, _ = view.attention.shape
    logging.info("wrote %s: %d wordpieces, %d layers of %d heads", config.output_file, length, num_layers, num_heads)


COMMAND = Command(
    config_class=AttentionConfig,
    summary="Shows what each attention head attends to in a text, as an HTML page, an image or JSON.",
    usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=bert_model.ckpt \
      --text="Who keeps the bees?" --text_b="In spring Marta keeps the bees." --output_file=attention.html

The page is one file that needs no network. With a pretrained checkpoint it also shows the masked-LM predictions at
each position; with a fine-tuned model, the words that decided its prediction. --format=png needs the extra "plots".
""",
    prepare=prepare,
    run=run,
)
