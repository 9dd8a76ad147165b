"""`extract_features`: compute the vectors of an encoder's layers for texts."""

import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from absl import logging

from official_bert.commands.shared.models import (
    ModelFiles,
    TextFileOptions,
    load_sentence_encoder,
    needs_tensorflow,
    note_long,
    prepare_model,
)
from official_bert.config.poolings import LAYER, pooling_help, poolings_of
from official_bert.config.sentence_modules import MODEL, SPLADE
from official_bert.options.command import Command
from official_bert.options.groups import SentenceOptions, TpuOptions
from official_bert.options.option import option, options
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest

_POOLINGS = (*poolings_of(LAYER), MODEL, SPLADE)

if TYPE_CHECKING:
    from official_bert.data.feature_files import Write
    from official_bert.inference.text_encoder import TextEncoder
    from official_bert.serving.engine_model import EngineModel
    from official_bert.tasks.sentence_encoder.reader import ExportedEncoder

    AnyEncoder = TextEncoder | ExportedEncoder


@options(group="output")
class FeatureConfig(TextFileOptions, TpuOptions, SentenceOptions):
    exports_of: ClassVar[str | None] = "sentence_encoder"

    output_file: str | None = option(
        None, "File to write; - for standard output, with --output_format=jsonl.", required=True, is_output=True
    )
    layers: str = option(
        "-1,-2,-3,-4", "Comma-separated list of layers: 0 is the first, -1 the last.", from_checkpoint=True
    )
    use_one_hot_embeddings: bool = option(
        False, "Look up embeddings by multiplying with one-hot vectors, which is faster on TPU.", group="rarely needed"
    )

    output_format: str = option(
        "jsonl",
        "jsonl: JSON Lines, as written by Google's BERT; npz, npy: NumPy files; tfrecord: one Example per text.",
        choices=("jsonl", "npz", "tfrecord", "npy"),
    )
    pooling: str = option(
        "none",
        f"none: vectors of all wordpieces; otherwise one vector per text and layer. {pooling_help(_POOLINGS)} Default: "
        f"{MODEL} for such a folder or run.",
        choices=("none", *_POOLINGS),
        from_checkpoint=True,
    )
    dtype: str = option(
        "float32", "With --output_format=npz or npy: data type of the stored vectors.", choices=("float32", "float16")
    )
    long_text: str = option(
        "truncate",
        "How to handle texts longer than --max_seq_length: truncate them, or average overlapping windows.",
        group="text",
        choices=("truncate", "window"),
    )
    shard_size: int = option(
        0,
        "Number of texts per output file: NAME-00000.npz, NAME-00001.npz, ... are written, and finished ones of an "
        "earlier run are kept; 0 for one file.",
        minimum=0,
        maximum=10**6,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.output_format not in ("npz", "npy"):
            self.refuse("dtype", because="needs --output_format=npz or npy")
        if self.output_format == "npy" and self.pooling == "none":
            raise UserError("--output_format=npy holds one vector per text; give --pooling, or --output_format=npz")
        if self.output_file == "-" and (self.output_format != "jsonl" or self.shard_size):
            other = "--shard_size" if self.shard_size else f"--output_format={self.output_format}"
            raise UserError(f"--output_file=-: standard output supports only a single jsonl file; leave {other} out")

    @property
    def output_files(self) -> list[str]:
        """The file or the first shard."""
        return [_shard_path(self.output_file, 0)] if self.shard_size else super().output_files


def run(config: FeatureConfig, model: "ModelFiles | EngineModel") -> None:
    from official_bert.data.feature_files import FeatureLayout, feature_writer

    options = {"dtype": config.dtype, "use_one_hot_embeddings": config.use_one_hot_embeddings}
    encoder = load_sentence_encoder(config, model, use_windows=config.long_text == "window", **options)
    source = config.source
    is_pooled = config.pooling != "none"
    layout = FeatureLayout(config.layer_indices, encoder.width, is_pooled, config.dtype, encoder.is_sparse)
    open_writer = functools.partial(
        feature_writer,
        output_format=config.output_format,
        layout=layout,
        tokens_of=model.tokenizer.convert_ids_to_tokens,
    )
    with Progress("extracting features", source.count(), "texts") as progress:

        def report(num_texts: int) -> None:
            progress.update(num_texts, f"{encoder.num_texts / progress.seconds:,.0f} texts/s")

        if config.shard_size:
            num_texts = _write_shards(config, encoder, open_writer, report)
        else:
            with open_writer(config.output_file) as write:
                for num_texts, features in enumerate(encoder.features(source), start=1):
                    write(features)
                    report(num_texts)
    _log_counts(config, encoder, num_texts, progress.seconds)


def _log_counts(config: FeatureConfig, encoder: "AnyEncoder", num_texts: int, seconds: float) -> None:
    logging.info(
        "%s: %s texts; computed %s with %s wordpieces, %s texts/s",
        "standard output" if config.output_file == "-" else config.output_file,
        f"{num_texts:,}",
        f"{encoder.num_texts:,}",
        f"{encoder.num_wordpieces:,}",
        f"{encoder.num_texts / seconds:,.0f}",
    )
    how = "read in windows" if config.long_text == "window" else "truncated"
    note_long(encoder.num_long, "texts", config.max_seq_length, how)


def _shard_path(path: str, number: int) -> str:
    """Return the path of a shard: shard 12 of `features.npz` is `features-00012.npz`."""
    stem, ending = os.path.splitext(path)
    return f"{stem}-{number:05d}{ending}"


def _write_shards(
    config: FeatureConfig,
    encoder: "AnyEncoder",
    open_writer: "Callable[[str], AbstractContextManager[Write]]",
    report: Callable[[int], None],
) -> int:
    """Write the files of `--shard_size` texts, each with a `Manifest` beside it; keep finished ones."""
    texts, made_from = iter(config.source), _provenance(config, encoder)
    num_texts = num_kept = num_shards = 0
    while shard := list(itertools.islice(texts, config.shard_size)):
        path = _shard_path(config.output_file, num_shards)
        digest = hashlib.sha256(b"".join(json.dumps(text).encode() + b"\n" for text in shard)).hexdigest()
        manifest, provenance = f"{path}.json", {**made_from, "texts": digest}
        if Manifest.read_if_current(manifest, provenance, path):
            num_kept += 1
        else:
            writing.remove(manifest)
            with open_writer(path) as write:
                for features in encoder.features(shard, first_index=num_texts):
                    write(features)
                    report(features.index + 1)
            Manifest.write(manifest, provenance, [os.path.basename(path)])
        num_texts += len(shard)
        num_shards += 1
        report(num_texts)
    logging.info("%s: %d shards, %d of them from an earlier run", config.output_file, num_shards, num_kept)
    _warn_of_old_shards(config.output_file, num_shards)
    return num_texts


def _warn_of_old_shards(path: str, num_shards: int) -> None:
    """Warn of shards left by a run over more texts, which a glob would mix with this run's."""
    folder = os.path.dirname(path)
    stem, ending = os.path.splitext(os.path.basename(path))
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{5,}}){re.escape(ending)}")
    matches = [pattern.fullmatch(name) for name in files.list_folder(folder or ".")]
    old = [match[0] for match in matches if match and int(match[1]) >= num_shards]
    if old:
        logging.warning("%d shards of an earlier run over more texts remain, from %s on; delete them", len(old), old[0])


def _provenance(config: FeatureConfig, encoder: "AnyEncoder") -> dict[str, Any]:
    """Return everything except the texts that determines the features and their format."""
    names = ("layer_indices", "pooling", "dtype", "output_format", "max_seq_length", "long_text")
    return {**encoder.provenance, **{name: getattr(config, name) for name in names}}


COMMAND = Command(
    config_class=FeatureConfig,
    summary="Writes the outputs of BERT's layers for texts: a vector per wordpiece or per text.",
    usage=r"""
  {command} --input_file=texts.txt --output_file=features.jsonl --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --layers=-1,-2

With --pooling=mean --layers=-1 --output_format=npz it writes one vector per text, in a small fraction of the space.
""",
    prepare=prepare_model,
    run=run,
    uses_tensorflow=needs_tensorflow,
    last_value_counts=True,
)
