"""`export`: export a finished run, or a fine-tuned model folder, for servers and other engines."""

from official_bert.options.command import Command
from official_bert.options.groups import VersionOptions
from official_bert.options.option import option, options
from official_bert.support import files
from official_bert.support.errors import check_installed


@options(group="input")
class ExportConfig(VersionOptions):
    model_dir: str | None = option(
        None,
        "Output folder of a run or of save_model, or folder of a fine-tuned Hugging Face model.",
        required=True,
        is_path=True,
    )
    use_best_checkpoint: bool = option(False, "Export the best checkpoint of a run instead of the last.", group="model")


def check(config: ExportConfig) -> None:
    files.check_folder(config.model_dir, "model_dir")
    if config.export_format == "onnx":
        check_installed("tf2onnx", extra="onnx")


def run(config: ExportConfig) -> None:
    import official_bert

    values = dict(vars(config))
    official_bert.export(values.pop("model_dir"), **values)


COMMAND = Command(
    config_class=ExportConfig,
    summary="Exports a run or a fine-tuned model for servers, LiteRT and ONNX Runtime.",
    usage=r"""
  {command} out/reviews serving/reviews
  official-bert serve --export_dir=serving/reviews --ui

The export is the next numbered version in the second folder. An encoder without a task, which gives vectors, is
exported by export_embeddings. See docs/serving.md.
""",
    check=check,
    run=run,
    positional=("model_dir", "export_dir"),
)
