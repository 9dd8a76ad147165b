"""`tools/beam_predict.py`: texts or records in, predictions or vectors out, on one machine or a cluster."""

import time

from absl import logging

from official_bert.config.run_configs.beam import BeamPredictionConfig
from official_bert.data.text_inputs import TextSource
from official_bert.inference import exports
from official_bert.support import files, writing
from official_bert.support.extras import require
from official_bert.support.input_files import find_inputs, is_no_sidecar
from official_bert.support.progress import format_seconds


def run(config: BeamPredictionConfig) -> None:
    """Predicts all texts.

    Raises:
      UserError: an input or the model is missing or damaged, an option is unknown, a worker ended, or nothing can be
        written.
    """
    require("apache_beam", extra="beam")
    from official_bert.data import beam_jobs
    from official_bert.data.beam_shards import shard_paths
    from official_bert.inference import beam_prediction

    options = beam_jobs.pipeline_options(config.beam_arguments)
    names = find_inputs(config.input_file, is_input=is_no_sidecar if config.reads_records else None)
    inputs = [beam_prediction.InputFile(number, name, files.absolute(name)) for number, name in enumerate(names)]
    text_format = None
    if not config.reads_records:
        text_format = beam_prediction.TextFormat(config.text_columns, config.input_format, config.has_header)
        for name in names:
            TextSource(name, *text_format).check()
    output_files = shard_paths(config.output_file, config.num_shards)
    for path in output_files:
        writing.check_writable_folder(path, name="output_file")
    writing.check_no_overwriting(output_files, names, name="output_file")
    settings = beam_prediction.PredictionSettings(
        # One version for all workers, even if another is exported meanwhile.
        model_dir=files.absolute(exports.find_version(config.model_dir) or config.model_dir),
        pooling=config.pooling,
        max_seq_length=config.max_seq_length or None,
        text_format=text_format,
    )
    steps = beam_prediction.Predict(inputs, settings, [files.absolute(path) for path in output_files])
    logging.info("predicting %d file(s): %s", len(names), ", ".join(names))
    beam_jobs.remove_earlier(output_files)
    began = time.monotonic()
    counters = beam_jobs.run_job(steps, options)
    seconds = time.monotonic() - began
    num_inputs = counters[beam_prediction.NUM_INPUTS]
    logging.info(
        "%s %s in %s, %s/s; the model was loaded %d time(s), once by each worker process that predicted",
        f"{num_inputs:,}",
        "records" if config.reads_records else "texts",
        format_seconds(seconds),
        f"{num_inputs / seconds:,.0f}",
        counters[beam_prediction.NUM_MODELS],
    )
    logging.info("wrote %s", ", ".join(output_files))
