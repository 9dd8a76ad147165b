"""Settings for joining concurrent requests: the same numbers for our server and, in every export, for TensorFlow's."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingSettings:
    """Settings of the batches, by their names in TensorFlow Serving's `batching_parameters.txt`.

    Attributes:
      max_batch_size: maximum number of examples per request.
      max_execution_batch_size: maximum number of examples that the model computes together.
      batch_timeout_micros: longest time, in microseconds, for which a request waits for others to join its batch.
      max_enqueued_batches: maximum number of full batches that wait; further requests are refused.
      num_batch_threads: maximum number of batches that are computed at the same time.
    """

    max_batch_size: int = 1024
    max_execution_batch_size: int = 32
    batch_timeout_micros: int = 1000
    max_enqueued_batches: int = 1000
    num_batch_threads: int
