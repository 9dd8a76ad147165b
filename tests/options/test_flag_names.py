"""Messages of the library, as printed by scripts."""

import pytest

from official_bert.commands.sweep import SweepConfig
from official_bert.options.option import on_behalf_of, with_dashes
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        (
            "max_seq_length=65 exceeds max_position_embeddings=64",
            "--max_seq_length=65 exceeds max_position_embeddings=64",
        ),
        ("give another output_dir, or (init_checkpoint)", "give another --output_dir, or (--init_checkpoint)"),
        ("raise max_seq_length.", "raise --max_seq_length."),
        ("labels=a,b are the labels", "--labels=a,b are the labels"),
        ("--do_lower_case=true stays", "--do_lower_case=true stays"),
        ("data_dir=/data/output_dir/train_file.tsv", "--data_dir=/data/output_dir/train_file.tsv"),
        ("no column 'train_file'; my_output_dir/output_dir/x", "no column 'train_file'; my_output_dir/output_dir/x"),
    ],
)
def test_parameters_become_flags_unless_part_of_a_longer_word(message, printed):
    assert with_dashes(message, ClassifierConfig) == printed


def test_messages_on_behalf_of_another_command_have_its_flags_too():
    message = "keep_only_best with vocab_file"
    with (
        pytest.raises(UserError, match="run_classifier: --vocab_file"),
        on_behalf_of("run_classifier", ClassifierConfig),
    ):
        assert with_dashes(message, SweepConfig) == "--keep_only_best with --vocab_file"
        raise UserError("vocab_file")
    assert with_dashes(message, SweepConfig) == "--keep_only_best with vocab_file"
