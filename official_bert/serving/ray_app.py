"""A Ray Serve application: serves replicas of an export on a Ray cluster over HTTP, as `official-bert serve` does.

`deploy/ray_serve.yaml` is an example configuration. Needs the extra `ray`.
"""

import os

from pydantic import BaseModel, ConfigDict, Field, field_validator
from ray import serve
from starlette.applications import Starlette

from official_bert.options.groups import BatchingSettings
from official_bert.serving.app import BatchMetrics, make_app
from official_bert.serving.served_model import EngineOptions, ServedModel
from official_bert.serving.versions import engine_version
from official_bert.support import files


class ExportArguments(BaseModel):
    """`args` of the application, with the meanings of the flags of `official-bert serve`."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    export_dir: str  # folder of the versions, readable by every machine
    model_name: str = Field("", pattern=r"^[A-Za-z0-9_.-]*$")  # name of the model in URLs; by default the folder's name
    max_batch_size: int = Field(BatchingSettings.max_batch_size, ge=1)  # maximum number of examples per request
    accept_token_ids: bool = False  # whether token ids are accepted instead of texts, for vectors
    # maximum number of examples per model call
    max_execution_batch_size: int = Field(BatchingSettings.max_execution_batch_size, ge=1)
    # maximum time, in microseconds, that a request waits for others to join its batch
    batch_timeout_micros: int = Field(BatchingSettings.batch_timeout_micros, ge=0)
    # maximum number of queued batches per replica; further requests get 503
    max_enqueued_batches: int = Field(BatchingSettings.max_enqueued_batches, ge=1)
    # maximum number of batches that a replica computes in parallel; use its number of cores
    num_batch_threads: int = Field(1, ge=1)
    tensorflow_intra_op_parallelism: int = Field(1, ge=0)  # number of threads per operation; 0 for the number of cores

    @field_validator("export_dir")
    @classmethod
    def _check_is_absolute(cls, folder: str) -> str:
        if not (os.path.isabs(folder) or files.is_remote(folder)):
            raise ValueError(
                f"{folder} must be an absolute path: replicas run in other working directories, on other machines"
            )
        return folder

    @property
    def served_name(self) -> str:
        """The model's name in URLs."""
        return self.model_name or os.path.basename(self.export_dir.rstrip("/"))

    @property
    def batching(self) -> BatchingSettings:
        """Batching settings of one replica."""
        return BatchingSettings(**self.model_dump(include=set(BatchingSettings.__dataclass_fields__)))


_apps: list[Starlette] = []  # of the replica that this process starts


def _start(arguments: ExportArguments) -> ServedModel:
    """Load the version, replay its warm-up requests, and make the replica's application."""
    num_threads = arguments.tensorflow_intra_op_parallelism
    if engine_version(arguments.export_dir) is None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    options = EngineOptions(num_threads=num_threads)
    served = ServedModel(arguments.export_dir, arguments.batching, BatchMetrics(), options=options)
    served.start_watching()
    _apps.append(make_app(served, arguments.served_name, accept_token_ids=arguments.accept_token_ids))
    return served


def _take_app() -> Starlette:
    """Return the application to Ray, which asks for it after the replica's constructor."""
    return _apps.pop()


@serve.deployment
@serve.ingress(_take_app)
class ServedExport:
    """A replica: serves the highest version of an export, with separate batching."""

    def __init__(self, arguments: ExportArguments):
        # Ray copies this class, with the variables that it uses, to other processes; functions of modules are shared.
        self._served = _start(arguments)

    def __del__(self):
        self._served.close()


def app(arguments: ExportArguments) -> serve.Application:
    """Build the application: `serve run official_bert.serving.ray_app:app export_dir=/models/mrpc`."""
    return ServedExport.bind(arguments)
