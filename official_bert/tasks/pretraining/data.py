"""Pretraining records: their schema, creation from text, and the files of a run that reads them."""

import contextlib
import dataclasses
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from absl import logging

from official_bert.config.bert_config import BertConfig, check_memory
from official_bert.config.text_settings import TextSettings
from official_bert.data.documents import CorpusCounts
from official_bert.data.masking import MaskedSequence, Masker, MaskingVocabulary, Replacements
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.data.sentence_pairs import Corpus, SentencePair, full_sentences, ordered_pairs, sentence_pairs
from official_bert.families.bert import ElectraConfig
from official_bert.families.family import FAMILY_KEY
from official_bert.serving.versions import check_export
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest, find_inputs, is_no_sidecar
from official_bert.tasks.pretraining.options import REPLACED_TOKENS, PretrainingConfig, RecordOptions
from official_bert.tokenization import Tokenizer, Vocabulary, read_vocabulary, vocab
from official_bert.tokenization.sequences import JoinedSequence, join_texts
from official_bert.tokenization.tokenizer_files import tokenizer_kinds
from official_bert.training.model_files import find_text_flags, read_fitting_vocabulary, read_model_files
from official_bert.training.run_folder import MODEL_FILES, model_file, read_run_config

_NO_MASKS = "if it was made with masking=none, use dynamic_masking, which draws masks while training"
_MASKS = "it has masks already; leave out dynamic_masking, or make the records with masking=none"
_NEXT_SENTENCE_LABELS = Field("next_sentence_labels", (), "int32", below=2)

# S: max_seq_length, P: max_predictions_per_seq, V: vocabulary size, T: number of segment types.
PRETRAINING_SCHEMA = RecordSchema(
    *ENCODER_FIELDS,
    Field("masked_lm_positions", ("P",), "int32", below="S", hint_if_absent=_NO_MASKS),
    Field("masked_lm_ids", ("P",), "int32", below="V"),
    Field("masked_lm_weights", ("P",), "float32"),
    _NEXT_SENTENCE_LABELS,
)
# Unmasked records; masks are drawn during training.
UNMASKED_SCHEMA = RecordSchema(*ENCODER_FIELDS, _NEXT_SENTENCE_LABELS, unwanted={"masked_lm_positions": _MASKS})

RANDOM_NEXT, SWAPPED = "random next", "swapped"  # kinds of negative pairs

_DUBIOUS_SHARE_UNKNOWN = 0.05
_DUBIOUS_SHARE_SINGLE_SENTENCES = 0.9
_DUBIOUS_SHARE_CUT = 0.5


# The flags that determine the records of a text.
RECORD_FLAGS = (
    *("max_seq_length", "max_predictions_per_seq", "masked_lm_prob", "short_seq_prob", "do_whole_word_mask"),
    *("max_ngram_length", "masking", "mask_replace_prob", "random_replace_prob", "use_next_sentence"),
    *("sentence_order", "random_seed", "dupe_factor"),
)


def kind_of_negatives(settings: RecordOptions) -> str | None:
    """Return the kind of negative pairs; None if the records are not pairs."""
    if not settings.use_next_sentence:
        return None
    return SWAPPED if settings.sentence_order else RANDOM_NEXT


def check_corpus(
    counts: CorpusCounts, paths: Iterable[str], text_settings: TextSettings, settings: RecordOptions
) -> None:
    """Reject an empty corpus, and warn about text that the reference silently turns into poor records."""
    if not counts.num_documents:
        raise UserError(f"no text in {', '.join(dict.fromkeys(paths))}")
    if kind_of_negatives(settings) != RANDOM_NEXT:
        pass  # both segments come from the same document, so one document is enough
    elif counts.num_documents == 1:
        logging.warning(
            'the input is a single document, so "random" next sentences come from it too and the next-sentence '
            "labels are noise; put a blank line between documents"
        )
    elif counts.num_single > _DUBIOUS_SHARE_SINGLE_SENTENCES * counts.num_documents:
        logging.warning(
            "%d of %d documents have a single sentence, so all of their pairs are random; write one sentence per "
            "line, and blank lines only between documents",
            counts.num_single,
            counts.num_documents,
        )
    if counts.unknown_share > _DUBIOUS_SHARE_UNKNOWN:
        message = "%.1f%% of the wordpieces are %s; is this the right vocabulary, and does %s fit it?"
        logging.warning(message, 100 * counts.unknown_share, vocab.UNK, text_settings)


@dataclasses.dataclass
class RecordCounts:
    num_records: int = 0  # number of records; the other counts are over these
    num_positions: int = 0  # total length, padding included
    num_wordpieces: int = 0  # number of wordpieces, including [CLS] and [SEP]
    num_masked: int = 0  # number of wordpieces to predict
    num_negative: int = 0  # number of pairs whose second segment does not follow the first
    num_chosen: int = 0  # number of wordpieces of both segments before they are cut to the length of a record
    num_cut: int = 0  # number of wordpieces that are cut off

    def summary(self, corpus: CorpusCounts, settings: RecordOptions) -> str:
        """Return a one-line summary; warn if long lines spoil the pairs."""
        is_masked, negatives = settings.masking == "static", kind_of_negatives(settings)
        masked = f"masked {self.num_masked / self.num_wordpieces:.1%} and " if is_masked else "no masks, "
        pairs = "no pairs"
        if negatives:
            pairs = f"{negatives} {self.num_negative / self.num_records:.1%} of the pairs"
        if self.num_cut > _DUBIOUS_SHARE_CUT * self.num_chosen:
            logging.warning(
                "lines are longer than a record: %.1f%% of the wordpieces of the pairs were cut off, and %.1f%% of the "
                "pairs are %s; write one sentence per line, as split_sentences does",
                100 * self.num_cut / self.num_chosen,
                100 * self.num_negative / self.num_records,
                negatives.partition(" ")[0],
            )
        return (
            f"{corpus.num_documents:,} documents gave {self.num_records:,} records with {self.num_wordpieces:,} "
            f"tokens; padding {1 - self.num_wordpieces / self.num_positions:.1%} of all positions, "
            f"{masked}unknown {corpus.unknown_share:.2%} of the tokens, {pairs}"
        )


class RecordMaker:
    """Factory for the records of documents.

    Unmasked records draw no random numbers for masks. Pairs are drawn from the same stream in the same order, so
    from the second record on they differ from the pairs of masked records.
    """

    def __init__(self, tokenizer: Tokenizer, settings: RecordOptions):
        self.counts = RecordCounts()  # counts of the records created so far
        self._has_logged_example = False
        self._tokenizer = tokenizer
        self._settings = settings
        self._negatives = kind_of_negatives(settings)
        is_masked = settings.masking == "static"
        schema = PRETRAINING_SCHEMA if is_masked else UNMASKED_SCHEMA
        self._schema = schema.sized(S=settings.max_seq_length, P=settings.max_predictions_per_seq)
        self._specials = tokenizer.specials
        self._continues_word = ()
        if settings.sentence_order:
            self._continues_word = MaskingVocabulary.from_vocabulary(tokenizer.vocabulary).continues_word
        self._masker = None
        if is_masked:
            self._masker = Masker(
                tokenizer.vocabulary,
                masked_lm_prob=settings.masked_lm_prob,
                max_predictions_per_seq=settings.max_predictions_per_seq,
                whole_word=settings.do_whole_word_mask,
                max_ngram_length=settings.max_ngram_length,
                replacements=Replacements(settings.mask_replace_prob, settings.random_replace_prob),
            )

    def records(self, corpus: Corpus, document_index: int, rng: Random) -> Iterator[bytes]:
        """Create the records of a document; `corpus` supplies other documents for random next sentences."""
        for pair in self._pairs(corpus, document_index, rng):
            joined = join_texts(pair.first, pair.second, self._specials)
            masked = MaskedSequence(joined.input_ids, [], [])
            if self._masker:
                masked = self._masker.mask(joined.input_ids, rng)
            if not self._has_logged_example:
                self._log_example(joined, masked, pair)
            self._count(joined, masked, pair)
            yield self._schema.encode(
                {
                    "input_ids": masked.ids,
                    "input_mask": joined.input_mask,
                    "segment_ids": joined.segment_ids,
                    "masked_lm_positions": masked.positions,
                    "masked_lm_ids": masked.labels,
                    "masked_lm_weights": [1.0] * len(masked.labels),
                    "next_sentence_labels": bytes([pair.is_negative]),
                }
            )

    def _pairs(self, corpus: Corpus, document_index: int, rng: Random) -> Iterator[SentencePair]:
        options = {"short_seq_prob": self._settings.short_seq_prob, "rng": rng}
        max_tokens = self._settings.max_seq_length
        if self._negatives:
            options["max_num_wordpieces"] = self._specials.room(max_tokens, is_pair=True)
            if self._negatives == SWAPPED:
                yield from ordered_pairs(corpus, document_index, continues_word=self._continues_word, **options)
            else:
                yield from sentence_pairs(corpus, document_index, **options)
            return
        for stretch in full_sentences(corpus, document_index, max_num_wordpieces=max_tokens - 2, **options):
            yield SentencePair(stretch, array("i"), is_negative=False)

    def _count(self, joined: JoinedSequence, masked: MaskedSequence, pair: SentencePair) -> None:
        counts = self.counts
        counts.num_records += 1
        counts.num_positions += self._settings.max_seq_length
        counts.num_wordpieces += len(joined.input_ids)
        counts.num_masked += len(masked.labels)
        counts.num_negative += pair.is_negative
        counts.num_chosen += len(pair.first) + len(pair.second) + pair.num_cut
        counts.num_cut += pair.num_cut

    def _log_example(self, joined: JoinedSequence, masked: MaskedSequence, pair: SentencePair) -> None:
        self._has_logged_example = True
        pieces_of = self._tokenizer.convert_ids_to_tokens
        logging.info("example: %s", " ".join(pieces_of(masked.ids)))
        if self._masker:
            logging.info("  masked: %s", " ".join(pieces_of(masked.labels)))
        else:
            logging.info("  masked: none; run_pretraining.py masks while training")
        if self._negatives:
            negative = "the preceding sentences" if self._negatives == SWAPPED else "random"
            logging.info("  second part: %s", negative if pair.is_negative else "the actual next sentences")


_NOTE = ".tokenizer.json"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


class RecordsTokenizer(NamedTuple):
    note: str  # path of its manifest
    flag: str  # flag for such a file, `vocab_file` or `spm_model_file`
    path: str  # the copy of the vocabulary
    fingerprint: str  # `Vocabulary.fingerprint`
    settings: TextSettings  # text preprocessing settings
    sizes: Mapping[str, int]  # record file names and sizes in bytes


def _by_base(paths: Iterable[str]) -> dict[str, list[str]]:
    """Group record files by the name that the shards of an output share."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(_SHARD.sub("", path), []).append(path)
    return groups


@contextlib.contextmanager
def keeping_tokenizer(outputs: Sequence[str], tokenizer: Tokenizer, inputs: Iterable[str]) -> Iterator[None]:
    """Store the tokenizer of the records that the block writes; nothing is written after an error."""
    vocabulary, groups = tokenizer.vocabulary, _by_base(outputs)
    kept = [name for base in groups for name in (f"{base}.{vocabulary.file_name}", base + _NOTE)]
    writing.check_outputs(kept, inputs, name="output_file")
    yield
    for base, paths in groups.items():
        writing.write_file(f"{base}.{vocabulary.file_name}", vocabulary.file_content)
        provenance = {"file": vocabulary.file_name, **tokenizer.identity}
        Manifest.write(base + _NOTE, provenance, [os.path.basename(path) for path in paths], is_checked=False)


def find_tokenizer(paths: Iterable[str]) -> RecordsTokenizer | None:
    """Find the tokenizer that created record files; None if there is no manifest."""
    first = None
    for base, members in _by_base(paths).items():
        known = _read(base)
        for path in members if known else ():
            if known.sizes.get(os.path.basename(path)) != files.size(path):
                message = "%s is not the file described by %s, so the vocabulary is not taken from there"
                logging.log_first_n(logging.WARNING, message, 1, path, known.note)
                continue
            first = first or known
            if (first.fingerprint, first.settings) != (known.fingerprint, known.settings):
                raise UserError(
                    f"{known.note} records another vocabulary or other text settings than {first.note}; give records "
                    "with the same vocabulary"
                )
    return first


def _read(base: str) -> RecordsTokenizer | None:
    note = base + _NOTE
    manifest = Manifest.read(note)
    if manifest is None:
        return None
    newer = {"tokenize_chinese_chars": True, "strip_accents_only": False, "morphemes": None}
    known = {**newer, **manifest.provenance}
    kind = tokenizer_kinds().get(str(known.get("file")))
    *settings, morphemes = (known.get(name) for name in TextSettings._fields)
    if not (kind and isinstance(known.get("vocabulary"), str) and all(isinstance(value, bool) for value in settings)):
        raise UserError(f"{note} does not say what vocabulary records were made with; restore or delete it")
    path = f"{base}.{known['file']}"
    if not files.exists(path):
        return None
    return RecordsTokenizer(
        note,
        kind.vocabulary_class.flag,
        path,
        known["vocabulary"],
        TextSettings(*settings, morphemes),
        manifest.num_bytes,
    )


def with_vocabulary(config: PretrainingConfig, paths: Sequence[str]) -> PretrainingConfig:
    """Complete the flags of a run with the vocabulary and text settings of its records.

    If the records do not specify them, use those of the model in the output folder or, if required, those in the folder
    of the initial checkpoint.
    """
    kept = find_tokenizer(paths)
    if kept:
        return _with_tokenizer_of_records(config, kept)
    if config.vocab_file or config.spm_model_file:
        return config
    run = read_run_config(config.output_dir)
    for name, flag in MODEL_FILES.items():
        path = model_file(config.output_dir, name)
        if run and path and flag != "bert_config_file":
            settings = {name: run.flags[name] for name in TextSettings._fields if name in run.flags}
            return dataclasses.replace(config, **{flag: path, **settings})
    if config.init_checkpoint and (config.dynamic_masking or config.do_export):
        settings = config.text_settings._asdict().items()
        chosen = {name: value for name, value in settings if value != getattr(TextSettings(), name)}
        found = find_text_flags(config.init_checkpoint, chosen)
        if found:
            return dataclasses.replace(config, **found)
    if config.dynamic_masking:
        raise UserError("dynamic_masking needs the vocab_file that the records were made with")
    if config.do_export:
        raise UserError("do_export needs vocab_file, so that the exported model can tokenize text")
    return config


def _with_tokenizer_of_records(config: PretrainingConfig, kept: RecordsTokenizer) -> PretrainingConfig:
    named = {}
    if not (config.vocab_file or config.spm_model_file):
        named = {kept.flag: kept.path}
    completed = dataclasses.replace(config, **named, **kept.settings._asdict())
    vocabulary = read_vocabulary(completed)
    if vocabulary.fingerprint != kept.fingerprint:
        advice = f"restore it or delete {kept.note}" if named else f"leave {kept.flag} out"
        raise UserError(f"{vocabulary.source} is not the vocabulary that the records were made with; {advice}")
    for name, value in kept.settings._asdict().items():
        given = getattr(config, name)
        if given != value and given != getattr(TextSettings(), name):
            raise UserError(
                f"{name}={str(given).lower()}, but {kept.note} says that the records were made with "
                f"{name}={str(value).lower()}; leave it out"
            )
    return completed


class PretrainingInputs(NamedTuple):
    config: PretrainingConfig  # the flags, completed from the records' vocabulary settings
    bert_config: BertConfig  # the architecture
    paths: list[str]  # the record files; empty when only exporting a finished run
    vocabulary: Vocabulary | None = None  # None if unknown
    tokenizer: Tokenizer | None = None  # None unless the model is exported


def read_inputs(config: PretrainingConfig) -> PretrainingInputs:
    """Read the files given by flags, except records and weights, and check that they match."""
    direction = config.attention_direction
    bert_config = BertConfig.from_json_file(config.bert_config_file, attention_direction=direction)
    check_memory(bert_config, config.bert_config_file, for_training=config.do_train and config.trains_all_weights)
    bert_config.check_length(config.max_seq_length, config.bert_config_file)
    exported = bert_config
    if config.objective == REPLACED_TOKENS:
        exported = _generator_of(config, bert_config)
    paths = find_inputs(config.input_file, is_input=is_no_sidecar) if config.do_train or config.do_eval else []
    config = with_vocabulary(config, paths)
    inputs = PretrainingInputs(config, bert_config, paths)
    if config.do_export:
        check_export(config, exported)
        _, tokenizer = read_model_files(config, attention_direction=direction)
        return inputs._replace(vocabulary=tokenizer.vocabulary, tokenizer=tokenizer)
    if config.vocab_file or config.spm_model_file:
        return inputs._replace(vocabulary=read_fitting_vocabulary(config, bert_config))
    return inputs


def _generator_of(config: PretrainingConfig, bert_config: BertConfig) -> ElectraConfig:
    """Return the generator's architecture; raise unless this is an ELECTRA's, and has a generator of this size."""
    if not isinstance(bert_config, ElectraConfig):
        title = bert_config.family.title
        raise UserError(
            f"objective={REPLACED_TOKENS} needs an ELECTRA, but {config.bert_config_file} describes {title}; "
            f'give a file with "{FAMILY_KEY}": "{ElectraConfig.family_name}", such as recipes/electra_small.json'
        )
    try:
        return bert_config.generator(config.generator_size)
    except UserError as error:
        raise UserError(
            f"generator_size={config.generator_size:g} of {config.bert_config_file}: {error}; give a multiple of "
            f"1/{bert_config.num_attention_heads}"
        ) from error
