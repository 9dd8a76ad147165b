"""Text settings, as one value and as flags."""

import pytest

from official_bert.commands import all_commands
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.commands.fill_mask import FillMaskConfig
from official_bert.config.text_settings import TextSettings
from official_bert.options.groups import TextOptions, TokenizerOptions
from official_bert.support.errors import UserError


def test_every_script_that_reads_text_has_the_flags():
    classes = {name: command.config_class for name, command in all_commands().items()}
    reading = {
        name for name, each in classes.items() if hasattr(each, "vocab_file") and hasattr(each, "max_seq_length")
    }
    assert len(reading) > 12
    assert [name for name in reading if not issubclass(classes[name], TextOptions)] == []
    assert issubclass(TokenizerOptions, TextOptions)
    flags = dict.fromkeys(("init_checkpoint", "bert_config_file", "vocab_file", "text"), "somewhere")
    presplit = FillMaskConfig(**flags, do_lower_case=False, basic_tokenize=False)
    assert presplit.text_settings == TextSettings(do_lower_case=False, basic_tokenize=False)
    for changes, message in (
        ({"basic_tokenize": False}, "^basic_tokenize=false takes words as they are .*; give do_lower_case=false$"),
        ({"strip_accents": False, "do_lower_case": False}, "^strip_accents needs do_lower_case$"),
    ):
        with pytest.raises(UserError, match=message):
            FillMaskConfig(**flags, **changes)


@pytest.mark.parametrize("name", TextSettings._fields)
def test_flags_without_an_effect_are_refused(name):
    with pytest.raises(UserError, match=f"--{name} needs --to_hf"):
        HfConversionConfig(output_dir="a", hf_dir="b", **{name: not getattr(TextSettings(), name)})


def test_settings_in_messages():
    assert str(TextSettings()) == "do_lower_case=true"
    assert str(TextSettings(strip_accents=False)) == "do_lower_case=true, strip_accents=false"
    assert str(TextSettings(False, basic_tokenize=False)) == "do_lower_case=false, basic_tokenize=false"
