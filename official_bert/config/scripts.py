"""The table of scripts and tools: a row each, with its flags, its help and the function that does the work.

The files at the root and in `tools/` and the command `official-bert` run what stands here; what a row names is imported
when it runs, so that `--help` never pays for TensorFlow.
"""

import dataclasses

from official_bert.config.run_configs import (
    AnswerConfig,
    AnswerScoringConfig,
    ClassifierConfig,
    FillMaskConfig,
    GlueAverageConfig,
    HfConversionConfig,
    PretrainingConfig,
    PretrainingDataConfig,
    SquadConfig,
    StripCheckpointConfig,
    SweepConfig,
    VocabConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A script or tool.

    Attributes:
      name: as typed after `official-bert`; its file is called the same.
      config_class: dataclass made with `option()`; its fields are the flags.
      summary: what it does, in one line.
      run: the function to call with the config, as in `"official_bert.runs.classifier:run"`.
      usage: the rest of what `--help` says before the flags; `{command}` stands for the words that start it.
      check: a function that raises `UserError` for mistakes in the files that the config names. It is called with the
        config before TensorFlow is imported, so its module must not import that.
      uses_tensorflow: whether to import TensorFlow before the run, quietly.
    """

    name: str
    config_class: type
    summary: str
    run: str
    usage: str = ""
    check: str | None = None
    uses_tensorflow: bool = True

    def help_text(self, command: str) -> str:
        """What `--help` says before the flags.

        Args:
          command: the words that start the script, such as `official-bert run_squad`.
        """
        return f"{self.summary}\n{self.usage.replace('{command}', command)}".rstrip() + "\n"


_ROWS = (
    Script(
        name="create_pretraining_data",
        config_class=PretrainingDataConfig,
        summary="Makes TFRecord files for BERT pretraining from text.",
        usage="""
The text has one sentence a line and a blank line between documents.

  {command} --input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt
""",
        check="official_bert.runs.early_checks:check_pretraining_data",
        run="official_bert.runs.pretraining_data:run",
    ),
    Script(
        name="run_pretraining",
        config_class=PretrainingConfig,
        summary="Pretrains BERT on masked words and next sentences, and evaluates it.",
        usage=r"""
  {command} --input_file=records.tfrecord --output_dir=out --bert_config_file=bert_config.json \
      --do_train --do_eval
""",
        check="official_bert.runs.early_checks:check_pretraining",
        run="official_bert.runs.pretraining:run",
    ),
    Script(
        name="run_classifier",
        config_class=ClassifierConfig,
        summary="Fine-tunes BERT to classify sentences or pairs, evaluates it, and predicts.",
        usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
        check="official_bert.runs.early_checks:check_classifier",
        run="official_bert.runs.classifier:run",
    ),
    Script(
        name="run_squad",
        config_class=SquadConfig,
        summary="Fine-tunes BERT to answer questions from texts, and answers them.",
        usage=r"""
  {command} --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_predict
""",
        check="official_bert.runs.early_checks:check_squad",
        run="official_bert.runs.squad:run",
    ),
    Script(
        name="answer",
        config_class=AnswerConfig,
        summary="Answers questions about a text with a model that run_squad trained.",
        usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=out/squad \
      --context_file=letters.txt --question="Who keeps the bees?"

Without --question, questions are read from standard input, one a line, and answered as they come.
""",
        check="official_bert.runs.early_checks:check_answer",
        run="official_bert.runs.answering:run",
    ),
    Script(
        name="score_answers",
        config_class=AnswerScoringConfig,
        summary="Scores predicted answers as SQuAD's own scripts do: exact match and F1.",
        usage="""
  {command} --squad_file=dev-v1.1.json --predictions_file=predictions.json

With --version_2_with_negative also for questions with and without an answer on their own; --null_odds_file then adds
from which null odds on it would have been best to predict no answer.
""",
        run="official_bert.runs.answer_scoring:run",
        uses_tensorflow=False,
    ),
    Script(
        name="convert_hf_checkpoint",
        config_class=HfConversionConfig,
        summary="Converts a Hugging Face BERT to a checkpoint, or the other way round.",
        usage=r"""
Reads config.json, model.safetensors and vocab.txt; writes bert_model.ckpt, bert_config.json and vocab.txt:

  {command} --hf_dir=all-MiniLM-L6-v2 --output_dir=minilm

Turns a checkpoint of these scripts or of the first BERT release into a Hugging Face BERT:

  {command} --to_hf --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=hf
""",
        check="official_bert.runs.early_checks:check_hf_conversion",
        run="official_bert.runs.hf_conversion:run",
    ),
    Script(
        name="sweep",
        config_class=SweepConfig,
        summary="Fine-tunes with every combination of some settings, and names the best.",
        usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_classifier; --train_batch_size, --learning_rate, --num_train_epochs and --random_seed take lists,
by default those of the BERT paper and one seed.
Each run is a process of run_classifier in its own folder of --output_dir; sweep.tsv there holds the scores on the dev
set so far. The same command goes on where an earlier one ended; finished runs are not run again. A run that fails ends
the sweep.
""",
        run="official_bert.runs.sweep:run",
        uses_tensorflow=False,
    ),
    Script(
        name="glue_average",
        config_class=GlueAverageConfig,
        summary="Prints the table of GLUE from output folders of run_classifier.",
        usage="""
  {command} --output_dirs='out/mrpc-seed*,out/cola,out/mnli' --table_format=markdown

Each task has a row: its score is GLUE's metric times 100, the mean over the task's folders (seeds), with their standard
deviation. The last row is the mean over the tasks that have a folder; matched and mismatched MNLI make one task. WNLI
counts only with --count_wnli: GLUE's own average includes it, that of the BERT paper does not. AX never counts.
""",
        run="official_bert.runs.glue_average:run",
        uses_tensorflow=False,
    ),
    Script(
        name="build_vocab",
        config_class=VocabConfig,
        summary="Learns a WordPiece vocabulary from text.",
        usage="""
  {command} --input_file=corpus.txt --vocab_file=vocab.txt --vocab_size=8000
""",
        check="official_bert.runs.early_checks:check_build_vocab",
        run="official_bert.runs.vocab_building:run",
    ),
    Script(
        name="fill_mask",
        config_class=FillMaskConfig,
        summary="Fills in masked words with a pretrained checkpoint.",
        usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt \
      --init_checkpoint=bert_model.ckpt --text="the baker puts the [MASK] into the oven ."
""",
        check="official_bert.runs.early_checks:check_fill_mask",
        run="official_bert.runs.mask_filling:run",
    ),
    Script(
        name="strip_checkpoint",
        config_class=StripCheckpointConfig,
        summary="Copies a checkpoint without the optimizer's state: a third of the size.",
        usage="""
  {command} --init_checkpoint=out/model.ckpt-1000 --output_dir=stripped

Leaves out the optimizer's slots and the step, which only training needs.
""",
        check="official_bert.runs.early_checks:check_strip_checkpoint",
        run="official_bert.runs.checkpoint_stripping:run",
    ),
)

SCRIPTS = {row.name: row for row in _ROWS}
