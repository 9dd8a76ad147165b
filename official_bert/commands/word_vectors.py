"""`word_vectors`: compare a word's vectors in different sentences, as a table and a picture."""

import sys
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.text_options import check_model, note_long
from official_bert.options.command import Command
from official_bert.options.groups import SentenceOptions
from official_bert.options.option import option, options
from official_bert.support import writing
from official_bert.support.errors import UserError, check_installed, require

if TYPE_CHECKING:
    import numpy as np

    from official_bert.inference.mining import Occurrence


@options(group="input")
class WordVectorConfig(SentenceOptions):
    word: str | None = option(None, "Word to look for in the sentences.", required=True)
    input_file: str | None = option(None, "Sentences, one per line; - for standard input.", required=True, is_path=True)
    image_file: str | None = option(
        None,
        "PNG file to write: the occurrences, by the first two principal components of their vectors.",
        group="output",
        is_path=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.word.strip():
            raise UserError("--word is empty; give a word")


def check(config: WordVectorConfig) -> None:
    from official_bert.data.text_inputs import TextSource

    TextSource(config.input_file).check()
    check_model(config).check_layers(config.layer_indices, config.bert_config_file)
    if config.image_file is not None:
        writing.check_writable_folder(config.image_file, name="image_file")
        check_installed("matplotlib", extra="plots")


def run(config: WordVectorConfig) -> None:
    import numpy as np

    from official_bert.inference.mining import find_occurrences
    from official_bert.inference.sentence_index import read_sentences
    from official_bert.inference.text_encoder import VectorSettings, load_text_encoder
    from official_bert.metrics.retrieval import cosine_table, principal_components
    from official_bert.training.model_files import read_model_files
    from official_bert.visualization import attention

    if config.image_file is not None:
        require("matplotlib", extra="plots")
    bert_config, tokenizer = read_model_files(config)
    bert_config.check_layers(config.layer_indices, config.bert_config_file)
    if not tokenizer.encode(config.word):
        raise UserError(f"--word={config.word!r} contains no letters or digits; give a word")
    sentences = list(read_sentences(config.input_file, "input_file"))
    settings = VectorSettings(config.layer_indices, max_seq_length=config.max_seq_length)
    encoder = load_text_encoder(config, bert_config, tokenizer, settings)
    occurrences = list(find_occurrences(config.word, sentences, encoder))
    note_long(encoder.num_long, "sentences", config.max_seq_length)
    without = sorted({each.line for each in sentences} - {each.sentence.line for each in occurrences})
    if len(occurrences) < 2:
        raise UserError(
            f"--word={config.word} occurs {len(occurrences)} times in {config.input_file}; two are needed to compare"
        )
    if without:
        logging.info("%d sentences without %r, the first in line %d", len(without), config.word, without[0])
    vectors = np.stack([each.vector for each in occurrences])
    _write_table(occurrences, cosine_table(vectors))
    if config.image_file is not None:
        texts = [str(each.sentence) for each in occurrences]
        with writing.atomic_write(config.image_file, "wb") as sink:
            attention.draw_points(*principal_components(vectors), texts, config.word, sink)
        logging.info("drawn: %s", config.image_file)


def _write_table(occurrences: "list[Occurrence]", cosines: "np.ndarray") -> None:
    numbers = range(1, len(occurrences) + 1)
    sys.stdout.write("\t".join(("number", "line", *map(str, numbers), "sentence")) + "\n")
    for number, occurrence, row in zip(numbers, occurrences, cosines, strict=True):
        cells = (str(number), str(occurrence.sentence.line), *(f"{cosine:.4f}" for cosine in row))
        sys.stdout.write("\t".join((*cells, str(occurrence.sentence))) + "\n")


COMMAND = Command(
    config_class=WordVectorConfig,
    summary="Compares the vectors of a word in several sentences, as a table and an image.",
    usage=r"""
  {command} --word=bank --input_file=sentences.txt --image_file=bank.png --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

The image needs the extra "plots".
""",
    check=check,
    run=run,
)
