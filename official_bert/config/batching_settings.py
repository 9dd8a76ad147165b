"""Settings for batching concurrent requests, shared by our server and, through every export, TensorFlow Serving."""

import dataclasses

_POSITIONS_PER_EXAMPLE = 128  # average capacity of a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchingSettings:
    """Batching parameters, named as in TensorFlow Serving's `batching_parameters.txt`."""

    max_batch_size: int = 1024  # maximum number of examples per request
    max_execution_batch_size: int = 32  # maximum number of examples per call of the model
    batch_timeout_micros: int = 1000  # maximum time, in microseconds, that a request waits for others to join its batch
    max_enqueued_batches: int = 1000  # maximum number of full batches in the queue; further requests are rejected
    num_batch_threads: int  # maximum number of batches that are computed at the same time

    @property
    def is_batching(self) -> bool:
        """True unless each example is computed alone."""
        return self.max_execution_batch_size > 1

    @property
    def max_positions(self) -> int:
        """Maximum number of positions that the model computes together, unless a single example has more."""
        return self.max_execution_batch_size * _POSITIONS_PER_EXAMPLE
