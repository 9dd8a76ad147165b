"""`extract_features.py`: texts in, the vectors of an encoder's layers out."""

import functools

from absl import logging

from official_bert.config.run_configs.features import FeatureConfig
from official_bert.data.feature_files import FeatureLayout, feature_writer
from official_bert.data.records import fingerprint
from official_bert.data.text_inputs import STANDARD_STREAM, TextSource
from official_bert.inference.feature_shards import shard_path, write_shards
from official_bert.inference.features import ExtractionSettings, create_extractor, load_encoder
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.model import model_fingerprint
from official_bert.support import writing
from official_bert.support.progress import Progress
from official_bert.tokenization import Tokenizer
from official_bert.training.model_files import read_model_files


def run(config: FeatureConfig) -> None:
    """Writes the features of all texts.

    Raises:
      UserError: a file is missing or damaged, they do not fit each other, or nothing can be written.
    """
    source = TextSource.of(config)
    source.check()
    bert_config, tokenizer = read_model_files(config)
    bert_config.check_layers(config.layer_indices, config.bert_config_file)
    _check_output(config)
    encoder, strategy = load_encoder(config, bert_config, use_one_hot_embeddings=config.use_one_hot_embeddings)
    settings = ExtractionSettings(
        layers=config.layer_indices,
        pooling=config.pooling,
        max_seq_length=config.max_seq_length,
        use_windows=config.long_text == "window",
        dtype=config.dtype,
    )
    extractor = create_extractor(config, encoder, strategy, tokenizer, settings)
    layout = FeatureLayout(config.layer_indices, bert_config.hidden_size, config.pooling != "none", config.dtype)
    open_writer = functools.partial(
        feature_writer, output_format=config.output_format, layout=layout, tokens_of=tokenizer.convert_ids_to_tokens
    )
    with Progress("extracting features", source.count(), "texts") as progress:

        def report(num_texts: int) -> None:
            progress.update(num_texts, f"{extractor.num_texts / progress.seconds:,.0f} texts/s")

        if config.shard_size:
            num_texts = write_shards(
                config.output_file,
                source,
                extractor,
                open_writer,
                shard_size=config.shard_size,
                made_from=_fingerprint(config, tokenizer, encoder),
                report=report,
            )
        else:
            with open_writer(config.output_file) as write:
                for num_texts, features in enumerate(extractor.extract(source), start=1):
                    write(features)
                    report(num_texts)
        seconds = progress.seconds
    logging.info(
        "%s: %s texts; computed %s with %s wordpieces, %s texts/s",
        "standard output" if config.output_file == STANDARD_STREAM else config.output_file,
        f"{num_texts:,}",
        f"{extractor.num_texts:,}",
        f"{extractor.num_wordpieces:,}",
        f"{extractor.num_texts / seconds:,.0f}",
    )
    if extractor.num_long:
        logging.info(
            "%s texts have more than %d wordpieces and were %s",
            f"{extractor.num_long:,}",
            config.max_seq_length,
            "read in windows" if config.long_text == "window" else "truncated",
        )


def _check_output(config: FeatureConfig) -> None:
    if config.output_file == STANDARD_STREAM:
        return
    path = shard_path(config.output_file, 0) if config.shard_size else config.output_file
    writing.check_writable_folder(path, name="output_file")
    inputs = [] if config.input_file == STANDARD_STREAM else [config.input_file]
    writing.check_no_overwriting([path], inputs, name="output_file")


def _fingerprint(config: FeatureConfig, tokenizer: Tokenizer, encoder: BertEncoder) -> str:
    """Hashes all that decides what the features of a text are, and how they are stored."""
    return fingerprint(
        [config.layer_indices, config.pooling, config.dtype, config.output_format],
        [config.max_seq_length, config.long_text, tokenizer.settings.fingerprint],
        tokenizer.vocabulary.fingerprint,
        model_fingerprint(encoder),
    )
