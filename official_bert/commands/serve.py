"""`serve`: serve an exported model over REST and gRPC."""

import gc
import os
import re
from typing import TYPE_CHECKING

from official_bert.options.command import Command
from official_bert.options.groups import BatchingSettings, engine_option
from official_bert.options.option import MAX_BATCH_SIZE, MAX_PARTS, Options, option, options
from official_bert.serving.versions import engine_version
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, check_installed, require
from official_bert.support.processes import check_free

if TYPE_CHECKING:
    from official_bert.serving.app import Access

KEY_VARIABLE = "OFFICIAL_BERT_API_KEY"
_MAX_PORT, _GRPC_PORT = 2**16 - 1, 8500
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\sA-Z]+")


@options(group="serving")
class ServeConfig(Options):
    export_dir: str | None = option(
        None, "Folder of the exported versions of a model; the highest number is served.", required=True, is_path=True
    )
    model_name: str | None = option(None, "Name of the model in the URLs; by default that of --export_dir.")
    port: int = option(8501, "Port of the REST API.", minimum=1, maximum=_MAX_PORT)
    grpc_port: int | None = option(
        None,
        f"Port of gRPC; 0 for REST only. By default {_GRPC_PORT} for a SavedModel, and 0 for exports for LiteRT and "
        "ONNX: with gRPC, these load TensorFlow, too.",
        minimum=0,
        maximum=_MAX_PORT,
    )
    ui: bool = option(False, "Also serve a page at /ui to try the model in a browser.")
    accept_token_ids: bool = option(
        False, "Accept token ids of the model's vocabulary instead of texts, for vectors.", group="rarely needed"
    )
    max_batch_size: int = option(
        BatchingSettings.max_batch_size, "Maximum number of examples per request.", minimum=1, maximum=MAX_BATCH_SIZE
    )
    max_execution_batch_size: int = option(
        BatchingSettings.max_execution_batch_size,
        "Maximum number of examples per batch; 1 turns batching off.",
        group="rarely needed",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )
    batch_timeout_micros: int = option(
        BatchingSettings.batch_timeout_micros,
        "Maximum time that a request waits for others to join its batch, in microseconds.",
        group="rarely needed",
        minimum=0,
    )
    max_enqueued_batches: int = option(
        BatchingSettings.max_enqueued_batches,
        "Maximum number of waiting batches; further requests get 503.",
        group="rarely needed",
        minimum=1,
    )
    num_batch_threads: int = option(
        0,
        "Maximum number of batches computed at the same time; 0 for the number of cores.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
    )

    tensorflow_intra_op_parallelism: int = option(
        1,
        "Number of threads per operation, also of LiteRT, ONNX Runtime and OpenVINO; 0 for the number of cores. With "
        "1, different cores answer concurrent requests, which is faster.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
    )

    engine: str | None = engine_option()

    api_key: str | None = option(
        None,
        "Key that requests must send ('Authorization: Bearer KEY'), except those for /health; other users of the "
        f"machine may see it here, so the environment variable {KEY_VARIABLE} or --api_key_file is better.",
        group="access",
    )
    api_key_file: str | None = option(None, "File with the key.", group="access", is_path=True)
    ssl_certfile: str | None = option(
        None, "Certificate in PEM, with its chain: the server uses TLS.", group="access", is_path=True
    )
    ssl_keyfile: str | None = option(None, "Private key of --ssl_certfile, in PEM.", group="access", is_path=True)
    cors_origin: str | None = option(
        None,
        "Origins of web pages that may send requests, separated by commas, such as https://example.org; * for all.",
        group="access",
    )

    def __post_init__(self):
        super().__post_init__()
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise UserError("--ssl_certfile and --ssl_keyfile need each other")
        if self.api_key is not None and self.api_key_file is not None:
            raise UserError("--api_key and --api_key_file cannot be used together")
        if not re.fullmatch(r"[\w.-]+", self.served_name, re.ASCII):
            raise UserError(f"--model_name={self.served_name}: must consist of letters, digits, '_', '-' and '.'")
        if self.port == self.used_grpc_port:
            raise UserError(f"--port and --grpc_port are both {self.port}; each needs its own port")

    @property
    def served_name(self) -> str:
        return self.model_name or os.path.basename(os.path.abspath(self.export_dir))

    @property
    def used_grpc_port(self) -> int:
        if self.grpc_port is None:
            return 0 if engine_version(self.export_dir) else _GRPC_PORT
        return self.grpc_port

    @property
    def uses_tensorflow(self) -> bool:
        return self.used_grpc_port > 0 or engine_version(self.export_dir) is None

    def key(self) -> str | None:
        """Return the key that is given, in a file or in the environment; None if there is none."""
        source, key = "api_key", self.api_key
        if self.api_key_file is not None:
            source = f"api_key_file={self.api_key_file}"
            key = text_files.read_text(self.api_key_file, max_bytes=1 << 12).strip()
        elif key is None:
            source, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE)
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise UserError(f"{source}: an API key is one word of ASCII characters")
        return key

    def access(self) -> "Access":
        """Read the key, and check the files of TLS."""
        from official_bert.serving.app import Access

        key = self.key()
        if key is not None and self.ui:
            raise UserError("--ui: its page sends no API key; leave out one of both")
        origins = tuple(name.strip() for name in (self.cors_origin or "").split(",") if name.strip())
        if wrong := [name for name in origins if name != "*" and not _ORIGIN.fullmatch(name)]:
            raise UserError(f"--cors_origin={wrong[0]}: no origin as browsers send it, such as https://example.org")
        access = Access(key, self.ssl_certfile, self.ssl_keyfile, origins)
        access.check_certificate()
        return access

    def check_ports(self) -> None:
        check_free(self.port, "--port")
        if self.used_grpc_port:
            check_free(self.used_grpc_port, "--grpc_port")


def prepare(config: ServeConfig) -> "Access":
    from official_bert.training.run_folder import RUN_CONFIG_FILE

    files.check_folder(config.export_dir, "export_dir")
    names = {name.rstrip("/") for name in files.list_folder(config.export_dir)}
    if RUN_CONFIG_FILE in names and not any(map(str.isdecimal, names)):
        raise UserError(
            f"--export_dir={config.export_dir} is a training run, not an export; export it first: repeat the command "
            "of the run with --do_export --export_dir=FOLDER instead of --do_train, and serve FOLDER"
        )
    check_installed("uvicorn", extra="serve")
    config.check_ports()
    return config.access()


def run(config: ServeConfig, access: "Access") -> None:
    """Serve until SIGTERM or Ctrl-C."""
    require("uvicorn", extra="serve")
    from official_bert.serving.app import BatchMetrics
    from official_bert.serving.served_model import EngineOptions, ServedModel
    from official_bert.serving.server import serve

    if config.uses_tensorflow:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(config.tensorflow_intra_op_parallelism)
    config.check_ports()
    names = ("max_batch_size", "max_execution_batch_size", "batch_timeout_micros", "max_enqueued_batches")
    settings = BatchingSettings(
        **{name: getattr(config, name) for name in names},
        num_batch_threads=config.num_batch_threads or os.cpu_count() or 1,
    )
    engine = EngineOptions(config.engine, config.tensorflow_intra_op_parallelism)
    gc.freeze()  # or a full collection, which stops all threads, looks at TensorFlow's 500,000 objects, in 0.2 s
    serve(
        ServedModel(config.export_dir, settings, BatchMetrics(), options=engine),
        config.served_name,
        port=config.port,
        grpc_port=config.used_grpc_port,
        has_page=config.ui,
        accept_token_ids=config.accept_token_ids,
        access=access,
    )


COMMAND = Command(
    config_class=ServeConfig,
    summary="Serves an exported model as TensorFlow Serving does, and vectors of texts as OpenAI does.",
    usage=r"""
  {command} --export_dir=serving/reviews --port=8501
  curl http://localhost:8501/v1/models/reviews:predict \
      -d '{"signature_name": "text", "inputs": {"text_a": ["a gem"]}}'

Needs the extra "serve". A version exported while the server runs replaces the previous one. SIGTERM and Ctrl-C stop the
server after it has finished the requests in progress. See docs/servers.md.
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=lambda config: config.uses_tensorflow,
)
