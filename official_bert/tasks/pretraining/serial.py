"""Create pretraining records exactly as the reference does: one random stream, drawn from in its order."""

import os
from collections.abc import Iterator, Sequence
from random import Random

from official_bert.data.corpus_files import CorpusPart, read_lines
from official_bert.data.documents import tokenized_documents
from official_bert.data.records import RecordSpool, RecordWriter
from official_bert.data.sentence_pairs import Corpus
from official_bert.support import files
from official_bert.support.input_files import InputState
from official_bert.support.progress import Progress
from official_bert.tasks.pretraining.records import CorpusCounts, RecordMaker, RecordSettings
from official_bert.tokenization import Tokenizer


def write_serial(
    parts: Sequence[CorpusPart],
    tokenizer: Tokenizer,
    settings: RecordSettings,
    outputs: Sequence[str],
    compression: str,
) -> str:
    """Create the records of a corpus, which is held in memory.

    Args:
      parts: whole files, read in this order.
      tokenizer: converts lines to ids.
      settings: the record settings.
      outputs: TFRecord files, written round-robin.
      compression: one of `tfrecord.COMPRESSIONS`.

    Returns:
      A summary.

    Raises:
      UserError: a file cannot be read, has no text or changes while being read, or an output cannot be written.
    """
    maker = RecordMaker(tokenizer, settings)  # first, because it checks the vocabulary
    paths = [part.path for part in parts]
    inputs = InputState(paths)
    corpus = read_corpus(parts, tokenizer)
    inputs.check_unchanged()
    counts = CorpusCounts(
        num_documents=len(corpus.documents),
        num_single=sum(len(document) == 1 for document in corpus.documents),
        num_ids=len(corpus.ids),
        num_unknown=corpus.ids.count(tokenizer.unk_id),
    )
    counts.check(paths, tokenizer.settings, settings.negatives)
    # One stream for all random numbers: documents, pairs and masks, records.
    rng = Random(settings.random_seed)
    corpus.shuffle_documents(rng)
    folder = None if files.is_remote(outputs[0]) else os.path.dirname(outputs[0]) or "."  # large enough for the records
    with RecordWriter(outputs, compression) as writer, RecordSpool(folder) as spool:
        for record in _passes(maker, corpus, rng, settings.dupe_factor):
            spool.append(record)
        for record in spool.shuffled(rng):
            writer.write(record)
    return maker.counts.summary(counts, settings)


def read_corpus(parts: Sequence[CorpusPart], tokenizer: Tokenizer) -> Corpus:
    """Tokenize the files of a corpus; as in the reference, a document may continue in the next file."""
    corpus = Corpus()

    def details(seconds: float) -> tuple[str, str]:
        return f"{len(corpus.documents):,} documents", f"{len(corpus.ids) / (seconds or 1):,.0f} tokens/s"

    for document in tokenized_documents(read_lines(parts, details), tokenizer):
        corpus.add_document(document.sentence_lengths, document.ids)
    return corpus


def _passes(maker: RecordMaker, corpus: Corpus, rng: Random, dupe_factor: int) -> Iterator[bytes]:
    """Create records in `dupe_factor` passes over the documents, in the reference's order."""
    num_documents = len(corpus.documents)
    total = dupe_factor * num_documents
    with Progress("writing records", total, f"documents ({dupe_factor:,} passes over {num_documents:,})") as progress:
        for done in range(total):
            yield from maker.records(corpus, done % num_documents, rng)
            num_records = maker.counts.num_records
            rate = num_records / (progress.seconds or 1)
            progress.update(done + 1, f"{num_records:,} records", f"{rate:,.0f} records/s")
