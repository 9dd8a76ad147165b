"""Short runs of `run_pretraining.py` and of all tasks: their flags."""

import json
import random

_WORDS = ("the", "rain", "snow", "warm", "broken", "committees", "harbour", "bridge", "mirror", "town")
_TAGGED = {word: f"{word} {'B-LOC' if word == 'harbour' else 'O'}\n" for word in _WORDS}


def pretraining_flags(records_file, model_dir, **more):
    """Return the flags of a run with dropout."""
    files = {"input_file": records_file, "bert_config_file": model_dir / "bert_config.json"}
    sizes = {"max_seq_length": 64, "max_predictions_per_seq": 10, "train_batch_size": 8}
    return {**files, **sizes, "num_warmup_steps": 4, "learning_rate": 1e-3, "do_train": True, **more}


def _texts(rng, count):
    return [" ".join(rng.choices(_WORDS, k=rng.randrange(2, 12))) for _ in range(count)]


def runs_of_all_tasks(data, model, records_file, vocab_file, head_dropout=0.1):
    """Return a short run of each task, with training data in a folder: name to script and flags, except output_dir."""
    rng = random.Random(1)
    for name, count in (("train", 50), ("dev", 21)):
        rows = [f"{text}\t{int('snow' in text)}\n" for text in _texts(rng, count)]
        (data / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        sentences = ["".join(_TAGGED[word] for word in text.split()) for text in _texts(rng, count)]
        (data / f"{name}.conll").write_text("\n".join(sentences))
        pairs = [f"{text}\t{text.split()[0]} {_texts(rng, 1)[0]}\n" for text in _texts(rng, count)]
        (data / f"{name}.pairs.tsv").write_text("question\tanswer\n" + "".join(pairs))
        own = random.Random(count)
        choices = [json.dumps({"c": text, "o": _texts(own, 3), "l": len(text) % 3}) for text in _texts(own, count)]
        (data / f"{name}.choices.jsonl").write_text("\n".join(choices))
        paragraphs = []
        for number, text in enumerate(_texts(rng, count)):
            context, answer = f"the {text} quay", text.split()[0]
            answers = [{"text": answer, "answer_start": context.index(answer)}]
            question = {"id": f"{name}{number}", "question": "what was it", "answers": answers}
            paragraphs.append({"context": context, "qas": [question]})
        content = {"version": "made", "data": [{"title": "made", "paragraphs": paragraphs}]}
        (data / f"{name}.json").write_text(json.dumps(content))
    tuning = {
        **model, "vocab_file": vocab_file, "do_train": True, "train_batch_size": 8, "num_train_epochs": 1.0,
        "max_seq_length": 24, "learning_rate": 1e-3, "log_steps": 1, "do_predict": True, "predict_batch_size": 4,
    }  # fmt: skip
    labelling = {**tuning, "do_eval": True, "eval_batch_size": 4, "eval_steps": 3, "head_dropout": head_dropout}
    table = {"task_name": "custom", "text_a_column": "sentence", "label_column": "label", "data_dir": str(data)}
    return {
        "pretraining": ("run_pretraining", {
            **model, "input_file": records_file, "max_seq_length": 64, "max_predictions_per_seq": 10,
            "do_train": True, "train_batch_size": 8, "num_train_steps": 6, "num_warmup_steps": 2, "learning_rate": 1e-3,
            "log_steps": 1, "do_eval": True, "eval_batch_size": 4, "max_eval_steps": 3,
        }),
        "classification": ("run_classifier", {
            **labelling, **table, "train_file": "train.tsv", "eval_file": "dev.tsv", "predict_file": "dev.tsv",
        }),
        "tagging": ("run_ner", {
            **labelling, "train_file": str(data / "train.conll"), "eval_file": str(data / "dev.conll"),
            "predict_file": str(data / "dev.conll"), "gradient_accumulation_steps": 2,
        }),
        "multiple choice": ("run_multiple_choice", {
            **labelling, "data_dir": str(data), "train_file": "train.choices.jsonl",
            "eval_file": "dev.choices.jsonl", "predict_file": "dev.choices.jsonl", "context_column": "c",
            "choice_columns": "o", "label_column": "l",
        }),
        "question answering": ("run_squad", {
            **tuning, "train_file": str(data / "train.json"), "predict_file": str(data / "dev.json"), "doc_stride": 8,
            "max_query_length": 6,
        }),
        "sentence encoder": ("run_sentence_encoder", {
            **tuning, "data_dir": str(data), "train_file": "train.pairs.tsv", "eval_file": "dev.pairs.tsv",
            "predict_file": "dev.pairs.tsv", "text_columns": "question,answer", "do_eval": True, "eval_batch_size": 4,
            "eval_steps": 3, "gradient_accumulation_steps": 2,
        }),
    }  # fmt: skip
