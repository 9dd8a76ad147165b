"""`export_embeddings`: export an encoder as a model that maps texts to vectors."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from official_bert.commands.shared.models import ModelFiles, prepare_model
from official_bert.config.poolings import HEAD, poolings_of
from official_bert.config.sentence_modules import MODEL, NO_PROMPTS, SPLADE
from official_bert.options.command import Command
from official_bert.options.groups import FLOAT32, ModelOptions, VectorOptions, VersionOptions, listed_pooling_help
from official_bert.options.option import MAX_AXIS, option, options, redeclared
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.serving.text_model import TrainedModel
    from official_bert.tasks.sentence_encoder.servable import SentenceServable


@options(group="model")
class EmbeddingExportConfig(VectorOptions, VersionOptions, ModelOptions):
    known_poolings: ClassVar[Sequence[str]] = (*poolings_of(HEAD), MODEL)

    max_seq_length: int = option(
        0,
        "Maximum number of wordpieces per text, including [CLS] and [SEP]; longer texts are truncated. 0 for the "
        "model's maximum.",
        group="text",
        from_checkpoint=True,
        minimum=0,
        maximum=MAX_AXIS,
    )
    static: bool = option(
        False,
        "Export static vectors: the encoder computes one for each wordpiece, alone, and the vector of a text is their "
        "weighted sum, of length 1; much faster, and less exact. --vector_size is then the number of principal "
        "components, 256 by default.",
    )
    pooling: str | None = redeclared(
        VectorOptions,
        "pooling",
        default=None,
        help=f"{listed_pooling_help(known_poolings)} Default: {MODEL} for a sentence-transformers folder, the trained "
        "pooling for a run of run_sentence_encoder, otherwise mean.",
        from_checkpoint=True,
    )

    @property
    def poolings(self) -> list[str]:
        return (self.pooling or "mean").split(",")

    @property
    def changes_of_run(self) -> dict[str, Any]:
        """The flags that replace those saved with a run of `run_sentence_encoder`."""
        changes = {
            "do_export": True,
            "export_dir": self.export_dir,
            "vector_types": self.vector_types,
            "prefix": self.prefix,
        }
        given = {"vector_size": self.vector_size, "max_seq_length": self.max_seq_length, "normalize": self.normalize}
        return changes | {name: value for name, value in given.items() if value}

    def __post_init__(self):
        super().__post_init__()
        if MODEL in self.poolings and self.poolings != [MODEL]:
            raise UserError(f"--pooling={self.pooling}: {MODEL} cannot be combined with other poolings")
        if SPLADE in self.poolings:
            self.refuse("normalize", "static", because=f"cannot be used with --pooling={SPLADE}")
        if self.static:
            self.refuse("normalize", "prefix", because="cannot be used with --static")
            if self.export_precision == "bfloat16":
                raise UserError("--export_precision=bfloat16 cannot be used with --static, whose table is in float32")


def prepare(config: EmbeddingExportConfig) -> ModelFiles:
    from official_bert.serving.versions import check_export
    from official_bert.tokenization.tokenizer import check_max_seq_length

    model = prepare_model(config)
    check_max_seq_length(config.max_seq_length or model.bert_config.max_length)
    check_export(config, model.bert_config)
    return model


def run(config: EmbeddingExportConfig, model_files: ModelFiles) -> None:
    from official_bert.serving.exports import export_run
    from official_bert.serving.text_model import TrainedModel

    export_run(_servable, TrainedModel(config, *model_files, config.init_checkpoint))


def _servable(trained: "TrainedModel") -> "SentenceServable":
    from official_bert.tasks.sentence_encoder.static import static_servable

    config: EmbeddingExportConfig = trained.config
    if not config.static:
        return _servable_of_encoder(trained)
    of_wordpieces = dataclasses.replace(config, static=False, prefix="", vector_size=0, vector_types=FLOAT32)
    servable = _servable_of_encoder(trained._replace(config=of_wordpieces))
    return static_servable(servable, config.vector_size, config.listed_vector_types)


def _servable_of_encoder(trained: "TrainedModel") -> "SentenceServable":
    from official_bert.checkpoints.loading import load, open_checkpoint
    from official_bert.checkpoints.locate import locate, model_folders
    from official_bert.modeling.encoder import create_encoder
    from official_bert.modeling.sentence import SentenceModel
    from official_bert.modeling.token_model import is_needed
    from official_bert.options.option import config_from_saved
    from official_bert.tasks.sentence_encoder.head import find_head
    from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
    from official_bert.tasks.sentence_encoder.servable import SentenceServable, servable_of_run
    from official_bert.training.run_folder import read_run_config

    config, bert_config, tokenizer, checkpoint, encoder_options = trained
    run = read_run_config(model_folders(checkpoint)[-1])
    if run and run.task == SentenceServable.task and config.pooling in (None, MODEL):
        flags = {**run.flags, **config.changes_of_run, "bert_config_file": config.bert_config_file}
        of_run = config_from_saved(SentenceEncoderConfig, flags, run.path)
        return servable_of_run(trained._replace(config=of_run, checkpoint=locate(checkpoint, "init_checkpoint").prefix))
    encoder = create_encoder(bert_config, encoder_options)
    load(open_checkpoint(checkpoint, "init_checkpoint"), encoder.weights, required=is_needed)
    head = find_head(checkpoint, encoder) if config.pooling in (MODEL, SPLADE) else None
    if config.pooling == MODEL and not head.is_default:
        raise UserError(f"pooling={MODEL} needs the folder of a sentence-transformers model")
    prompts = head.prompts if head else NO_PROMPTS
    if not prompts.are_pooled:
        prompts = prompts._replace(by_name={})  # their lengths differ
    if config.prefix is not None:
        prompts = prompts._replace(default=config.prefix)
    return SentenceServable(
        head.model if head else SentenceModel(encoder, poolings=config.poolings),
        bert_config,
        tokenizer,
        max_seq_length=config.max_seq_length or bert_config.max_length,
        size=config.vector_size or None,
        normalize=config.normalize,
        vector_types=config.listed_vector_types,
        prompts=prompts,
        query_weights=head.query_weights if head else None,
    )


COMMAND = Command(
    config_class=EmbeddingExportConfig,
    summary="Exports an encoder as a model that maps texts to vectors.",
    usage=r"""
  {command} --init_checkpoint=all-MiniLM-L6-v2 --export_dir=serving/minilm

For a sentence-transformers folder, all its modules are exported. For other encoders, --pooling and --normalize define
the vector of a text. See docs/serving.md for servers that load the export.
""",
    prepare=prepare,
    run=run,
)
