"""The files of a model, as every script that builds one reads them."""

import json

import pytest

from official_bert.config.run_configs.classification import ClassifierConfig
from official_bert.config.run_configs.pretraining import PretrainingConfig
from official_bert.config.run_configs.question_answering import AnswerConfig, SquadConfig
from official_bert.config.run_configs.tools import AttentionConfig, FillMaskConfig
from official_bert.runs import answer, fill_mask, run_classifier, run_pretraining, run_squad, view_attention
from official_bert.support.errors import UserError


def test_no_script_begins_to_build_a_model_that_the_machine_cannot_hold(files_of_model, tmp_path):
    config = json.loads(open(files_of_model["bert_config_file"]).read())
    large = tmp_path / "bert_config.json"
    large.write_text(json.dumps(config | {"intermediate_size": 2**31 - 1, "num_hidden_layers": 10_000}))
    files = {**files_of_model, "bert_config_file": str(large)}
    run_files = {**files, "output_dir": str(tmp_path / "out"), "do_train": True}
    context = tmp_path / "context.txt"
    context.write_text("the warm town")
    for run, run_config in (
        (run_pretraining.run, PretrainingConfig(**{**run_files, "vocab_file": None}, input_file="absent")),
        (run_classifier.run, ClassifierConfig(**run_files, task_name="mrpc", data_dir="absent")),
        (run_squad.run, SquadConfig(**run_files, train_file="absent")),
        (fill_mask.run, FillMaskConfig(**files, text="the [MASK] town")),
        (view_attention.run, AttentionConfig(**files, text="the town", output_file=str(tmp_path / "page.html"))),
        (answer.run, AnswerConfig(**files, context_file=str(context), question="what", max_seq_length=64)),
    ):
        kind = "to be trained" if "do_train" in run_config.__dict__ else "of memory"
        message = f"bert_config.json: intermediate_size is 2147483647; .* parameters and needs .* GB {kind}, but this"
        with pytest.raises(UserError, match=message):
            run(run_config)
    assert not (tmp_path / "out").exists()
