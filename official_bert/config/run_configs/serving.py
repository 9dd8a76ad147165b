"""Flags of the model server."""

import os
import re

from official_bert.config.batching import BatchingSettings
from official_bert.config.options import MAX_BATCH_SIZE, MAX_PARTS, check_options, option, options
from official_bert.support.errors import UserError
from official_bert.support.ports import check_free

_MAX_PORT = 2**16 - 1


@options(group="serving")
class ServeConfig:
    """Flags of `tools/serve.py`."""

    export_dir: str | None = option(
        None, "Folder of the exported versions of a model; the highest number is served.", required=True, is_path=True
    )
    model_name: str | None = option(None, "Name of the model in the addresses; by default that of --export_dir.")
    port: int = option(8501, "Port of the REST API.", minimum=1, maximum=_MAX_PORT)
    grpc_port: int = option(8500, "Port of gRPC; 0 for REST only.", minimum=0, maximum=_MAX_PORT)
    ui: bool = option(False, "Also serve a page at /ui to try the model in a browser.")
    max_batch_size: int = option(
        BatchingSettings.max_batch_size,
        "Maximum number of examples per request.",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
    )
    max_execution_batch_size: int = option(
        BatchingSettings.max_execution_batch_size,
        "Maximum number of examples that the model computes together; 1 turns batching off.",
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
        "Maximum number of batches that wait; further requests are refused with 503.",
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
        "Number of threads that share one operation; 0 for the number of cores. With 1, requests that come at the same "
        "time are answered by different cores, which is faster.",
        group="rarely needed",
        minimum=0,
        maximum=MAX_PARTS,
    )

    def __post_init__(self):
        check_options(self)
        if not re.fullmatch(r"[\w.-]+", self.served_name, re.ASCII):
            raise UserError(f"--model_name={self.served_name}: must consist of letters, digits, '_', '-' and '.'")
        if self.port == self.grpc_port:
            raise UserError(f"--port and --grpc_port are both {self.port}; each needs a port of its own")

    @property
    def served_name(self) -> str:
        """The model's name in the addresses."""
        return self.model_name or os.path.basename(os.path.abspath(self.export_dir))

    def check_ports(self) -> None:
        """Checks that no other process has the ports.

        Raises:
          UserError: one has.
        """
        check_free(self.port, "--port")
        if self.grpc_port:
            check_free(self.grpc_port, "--grpc_port")
