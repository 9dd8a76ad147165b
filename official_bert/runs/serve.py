"""`tools/serve.py`: an exported model behind REST and gRPC."""

import os

from official_bert.config.batching import BatchingSettings
from official_bert.config.run_configs.serving import ServeConfig
from official_bert.support.extras import require


def run(config: ServeConfig) -> None:
    """Serves until SIGTERM or Ctrl-C.

    Raises:
      UserError: there is no version in the folder, it is damaged, a port is in use, or the extra is not installed.
    """
    require("kserve", extra="serve")
    import tensorflow as tf

    from official_bert.serving.server import serve

    tf.config.threading.set_intra_op_parallelism_threads(config.tensorflow_intra_op_parallelism)
    config.check_ports()
    settings = BatchingSettings(
        max_batch_size=config.max_batch_size,
        max_execution_batch_size=config.max_execution_batch_size,
        batch_timeout_micros=config.batch_timeout_micros,
        max_enqueued_batches=config.max_enqueued_batches,
        num_batch_threads=config.num_batch_threads or os.cpu_count() or 1,
    )
    serve(
        config.export_dir,
        name=config.served_name,
        settings=settings,
        port=config.port,
        grpc_port=config.grpc_port,
        has_page=config.ui,
    )
