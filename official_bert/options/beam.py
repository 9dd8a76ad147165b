"""Flags for Apache Beam pipelines."""

import shlex

from official_bert.options.option import Options, option, options
from official_bert.support.errors import UserError


@options(group="devices")
class BeamOptions(Options):
    """Flags of every command that runs as a Beam pipeline."""

    beam_args: str = option(
        "",
        "Beam pipeline options, quoted as one value, such as '--runner=FlinkRunner --flink_master=host:8081'; by "
        "default the pipeline runs in this process.",
    )

    @property
    def beam_arguments(self) -> list[str]:
        """The options in --beam_args, split as a shell splits them."""
        try:
            return shlex.split(self.beam_args)
        except ValueError as error:
            raise UserError(f"--beam_args={self.beam_args}: {error}") from error
