"""`tools/view_attention.py`: a text in, a page, an image or numbers out that show what the heads attend to."""

import dataclasses
import json

from absl import logging

from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs.tools import AttentionConfig
from official_bert.inference.attention import AttentionReader
from official_bert.support import writing
from official_bert.training.model_files import read_model_files
from official_bert.visualization import attention, attention_image


def run(config: AttentionConfig) -> None:
    """Writes the file.

    Raises:
      UserError: a file does not fit the others, there is no such head, the text is empty, or nothing can be written.
    """
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_head(config.layer or 0, config.head or 0, config.bert_config_file)
    inputs = (config.bert_config_file, config.vocab_file)
    writing.check_no_overwriting([config.output_file], inputs, "output_file")
    length = min(config.max_seq_length, bert_config.max_position_embeddings)  # longer texts are truncated
    bert_config, tokenizer = read_model_files(dataclasses.replace(config, max_seq_length=length))
    read = AttentionReader(bert_config, tokenizer, config.init_checkpoint, top_k=config.top_k)
    view = read(config.text, config.text_b, max_seq_length=config.max_seq_length)
    chosen = None
    if config.layer is not None:
        chosen = {
            "layer": config.layer % bert_config.num_layers,
            "head": config.head % bert_config.num_attention_heads,
        }
    with writing.atomic_write(config.output_file, "wb") as sink:
        if config.format == "json":
            sink.write(json.dumps(attention.as_json(view, merges_words=config.merge_words)).encode())
        elif config.format == "html":
            first = chosen or {"layer": 0, "head": 0}
            sink.write(attention.page(view, **first, merges_words=config.merge_words).encode())
        elif chosen:
            attention_image.draw_head(view, sink, **chosen, merges_words=config.merge_words)
        else:
            attention_image.draw_overview(view, sink, merges_words=config.merge_words)
    num_layers, num_heads, length, _ = view.attention.shape
    logging.info("wrote %s: %d wordpieces, %d layers of %d heads", config.output_file, length, num_layers, num_heads)
