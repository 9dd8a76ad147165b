"""Commands, one module each: flags, help text, file checks and the run.

`official-bert NAME`, `python -m official_bert NAME` and the scripts at the root call `start`. The imports of a run are
deferred, so that `--help` never imports TensorFlow.
"""

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from official_bert.options.command import Command, exiting_with_one_line, run_command

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
# The groups of `official-bert --help`.
GROUPS = {
    "train": "run_pretraining run_classifier run_squad run_ner run_multiple_choice run_sentence_encoder sweep "
    "launch_workers demo",
    "data": "create_pretraining_data beam_pretraining_data build_vocab split_sentences mine_hard_negatives",
    "models": "convert_hf_checkpoint edit_checkpoint",
    "use": "predict extract_features fill_mask sentence_similarity score_sentences view_attention "
    "beam_predict score_answers",
    "serve": "export export_embeddings serve",
}
# Commands of earlier versions, and what does their work now.
RENAMED = {
    "ablation": "recipes/ablations/run.sh",
    "answer": "predict --context_file",
    "convert_adapter": "convert_hf_checkpoint",
    "edit_vocab": "edit_checkpoint --input_file",
    "extend_positions": "edit_checkpoint --max_position_embeddings",
    "glue_average": "the eval_results.txt in each output folder",
    "mine_paraphrases": "sentence_similarity --query_file=SENTENCES --candidates_file=SENTENCES",
    "plot_metrics": "tensorboard --logdir=OUTPUT_DIR",
    "word_vectors": "extract_features",
}


def load_command(name: str) -> Command:
    return importlib.import_module(f"{__name__}.{name}").COMMAND


def all_commands() -> dict[str, Command]:
    return {name: load_command(name) for name in NAMES}


def start(name: str) -> NoReturn:
    """Run a command with the process's flags, then exit."""
    with exiting_with_one_line():  # also on Ctrl-C while its modules are imported
        command = load_command(name)
    run_command(command, _with_files_of_model)


def _with_files_of_model(config_class: type, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    from official_bert.commands.shared.models import complete_export_flags
    from official_bert.training.model_files import complete_model_flags

    completed = complete_export_flags(config_class, values, given)
    return complete_model_flags(config_class, values, given) if completed is None else completed
