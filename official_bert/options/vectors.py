"""Flags of the commands that compute one vector per text."""

from collections.abc import Sequence
from typing import ClassVar

from official_bert.options.option import MAX_AXIS, Options, option, options
from official_bert.support.errors import UserError

VECTOR_TYPES = FLOAT32, INT8, BINARY = ("float32", "int8", "binary")
POOLINGS = ("mean", "cls", "max", "second_to_last", "sum_last_four", "concat_last_four")


def pooling_help(poolings: Sequence[str]) -> str:
    """Return the help text of --pooling for the poolings that a command knows."""
    return (
        f"The vector of a text, one of {', '.join(poolings)}: the mean or maximum of the last layer over the "
        "wordpieces, the last layer at [CLS], or the mean of other layers. The vectors of a comma-separated list are "
        "concatenated."
    )


@options(group="model")
class VectorOptions(Options):
    """Flags for the vector of a text, and for its export.

    Attributes:
      known_poolings: the poolings that the command knows.
    """

    known_poolings: ClassVar[Sequence[str]] = POOLINGS

    pooling: str = option("mean", pooling_help(POOLINGS), affects="model")
    normalize: bool = option(False, "Scale the vectors to length 1.", affects="model")
    vector_size: int = option(
        0,
        "Number of leading components of each vector to export, for models trained for shorter vectors "
        "(--matryoshka_sizes of run_sentence_encoder); 0 for all. If the model normalizes, truncated vectors are "
        "normalized again.",
        group="export",
        minimum=0,
        maximum=MAX_AXIS,
        affects="nothing",
    )
    vector_types: str = option(
        FLOAT32,
        "Comma-separated types of the vectors that the export returns: float32, which is always included; int8, scaled "
        "by the largest component of each vector; binary, one bit per component.",
        group="export",
        affects="nothing",
    )
    prefix: str | None = option(
        None,
        'Prefix that the export adds to every text, such as "query: "; empty for none. Default: --query_prefix of a '
        "run of run_sentence_encoder, or the default prompt of a sentence-transformers folder.",
        group="export",
        affects="nothing",
    )

    def __post_init__(self):
        super().__post_init__()
        _check_listed("pooling", self.poolings, self.known_poolings)
        _check_listed("vector_types", self.listed_vector_types, VECTOR_TYPES)

    @property
    def poolings(self) -> list[str]:
        """The poolings listed in --pooling."""
        return self.pooling.split(",")

    @property
    def listed_vector_types(self) -> list[str]:
        """The types listed in --vector_types."""
        return self.vector_types.split(",")


def check_vector_size(size: int, width: int) -> None:
    """Raise an error if a model's vectors are shorter than the size to truncate them to.

    Args:
      size: the number of components to keep; 0 for all.
      width: the number of components of the model's vectors.

    Raises:
      UserError: the size exceeds the width.
    """
    if size > width:
        raise UserError(f"vector_size={size} exceeds the {width} components of the model's vectors")


def _check_listed(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        raise UserError(f"--{name}: {unknown!r:.80} is unknown; choose from {', '.join(known)}")
    if len(set(values)) < len(values):
        raise UserError(f"--{name} lists a value twice")
