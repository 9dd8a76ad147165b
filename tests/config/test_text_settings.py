"""Text settings, as one value and as flags."""

import dataclasses

import pytest

from official_bert.commands.answer import AnswerConfig
from official_bert.commands.build_vocab import VocabConfig
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.commands.extract_features import FeatureConfig
from official_bert.commands.fill_mask import FillMaskConfig
from official_bert.commands.view_attention import AttentionConfig
from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.pretraining.options import PretrainingConfig, PretrainingDataConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tasks.tagging.options import TaggingConfig

CONFIGS = (
    ClassifierConfig,
    SquadConfig,
    TaggingConfig,
    FeatureConfig,
    AnswerConfig,
    FillMaskConfig,
    AttentionConfig,
    PretrainingDataConfig,
    PretrainingConfig,
    VocabConfig,
    HfConversionConfig,
)


def make(config_class, **flags):
    """Return a config with its required flags, and those that text flags need."""
    values = {"layers": "-1", "task_name": "cola"}
    needed = {
        field.name: values.get(field.name, "somewhere") if field.default is None else field.default
        for field in dataclasses.fields(config_class)
        if field.metadata["required"]
    }
    if config_class is PretrainingConfig:
        needed |= {"do_train": True}
    if config_class is HfConversionConfig:
        needed |= dict.fromkeys(("init_checkpoint", "bert_config_file", "vocab_file"), "somewhere") | {"to_hf": True}
    if config_class in (ClassifierConfig, SquadConfig, TaggingConfig):
        needed |= {"do_predict": True}
    if config_class in (SquadConfig, TaggingConfig):
        needed |= {"predict_file": "somewhere"}
    return config_class(**needed, **flags)


@pytest.mark.parametrize("config_class", CONFIGS)
def test_every_script_that_reads_text_has_the_flags(config_class):
    assert make(config_class).text_settings == TextSettings()
    presplit = make(config_class, do_lower_case=False, basic_tokenize=False)
    assert presplit.text_settings == TextSettings(do_lower_case=False, basic_tokenize=False)
    assert make(config_class, strip_accents=False).text_settings == TextSettings(strip_accents=False)
    message = "^basic_tokenize=false takes words as they are and lowercases nothing; give do_lower_case=false$"
    with pytest.raises(UserError, match=message):
        make(config_class, basic_tokenize=False)
    with pytest.raises(UserError, match="^strip_accents needs do_lower_case$"):
        make(config_class, strip_accents=False, do_lower_case=False)


@pytest.mark.parametrize("name", TextSettings._fields)
def test_flags_without_an_effect_are_refused(name):
    with pytest.raises(UserError, match=f"--{name} needs --to_hf"):
        HfConversionConfig(output_dir="a", hf_dir="b", **{name: not getattr(TextSettings(), name)})


def test_settings_in_messages():
    assert str(TextSettings()) == "do_lower_case=true"
    assert str(TextSettings(strip_accents=False)) == "do_lower_case=true, strip_accents=false"
    assert str(TextSettings(False, basic_tokenize=False)) == "do_lower_case=false, basic_tokenize=false"
