r"""Fine-tuning on SQuAD 1.1 with PyTorch and `transformers`, the peer of `run_squad.py`.

  python benchmarks/transformers_squad.py --hf_dir encoder_hf --train_file train-v1.1.json --predict_file dev-v1.1.json

Batches of 16 windows of similar lengths, 2 epochs, at most 384 wordpieces, padded to the longest of the batch. The
scores are computed by this project, and equal those of SQuAD's script. Needs the `bench` extra.
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
import torch
from torch_finetuning import fine_tune
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answers
from official_bert.tasks.question_answering.examples import SquadSet, read_squad

BATCH_SIZE, NUM_EPOCHS, WARMUP_PROPORTION = 16, 2.0, 0.1
MAX_SEQ_LENGTH, OVERLAP, NUM_BEST, MAX_ANSWER_LENGTH = 384, 128, 20, 30


class Window(NamedTuple):
    """A question with a part of its context; `offsets` are None outside of the context."""

    question_index: int
    input_ids: list[int]
    segment_ids: list[int]
    offsets: list[tuple[int, int] | None]
    start_position: int
    end_position: int


def make_windows(squad: SquadSet, tokenizer) -> list[Window]:
    windows = []
    for index, question in enumerate(squad.questions):
        encoded = tokenizer(
            question.text.strip(),
            squad.contexts[question.context_index],
            truncation="only_second",
            max_length=MAX_SEQ_LENGTH,
            stride=OVERLAP,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        answer = question.answers[0]
        answer_end = answer.start + len(answer.text)
        for number, input_ids in enumerate(encoded["input_ids"]):
            sequences = encoded.sequence_ids(number)
            offsets = [
                offset if sequence == 1 else None
                for offset, sequence in zip(encoded["offset_mapping"][number], sequences, strict=True)
            ]
            inside = [place for place, offset in enumerate(offsets) if offset]
            start = end = 0
            if inside and offsets[inside[0]][0] <= answer.start and answer_end <= offsets[inside[-1]][1]:
                start = max(place for place in inside if offsets[place][0] <= answer.start)
                end = min(place for place in inside if offsets[place][1] >= answer_end)
            windows.append(Window(index, input_ids, encoded["token_type_ids"][number], offsets, start, end))
    return windows


def batch_of(windows: list[Window]) -> dict[str, torch.Tensor]:
    length = max(len(window.input_ids) for window in windows)

    def padded(rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [0] * (length - len(row)) for row in rows])

    return {
        "input_ids": padded([window.input_ids for window in windows]),
        "token_type_ids": padded([window.segment_ids for window in windows]),
        "attention_mask": padded([[1] * len(window.input_ids) for window in windows]),
    }


def best_answer(window: Window, starts: np.ndarray, ends: np.ndarray) -> tuple[float, tuple[int, int]]:
    """Return the score and the character range of a window's best span."""
    best = (-np.inf, (0, 0))
    for start in np.argsort(-starts)[:NUM_BEST]:
        for end in np.argsort(-ends)[:NUM_BEST]:
            if start <= end < start + MAX_ANSWER_LENGTH and window.offsets[start] and window.offsets[end]:
                characters = (window.offsets[start][0], window.offsets[end][1])
                best = max(best, (float(starts[start] + ends[end]), characters))
    return best


def predict(model, squad: SquadSet, windows: list[Window]) -> dict[str, str]:
    best = {}
    windows = sorted(windows, key=lambda window: len(window.input_ids))
    for first in range(0, len(windows), BATCH_SIZE):
        part = windows[first : first + BATCH_SIZE]
        with torch.no_grad():
            outputs = model(**batch_of(part))
        for window, starts, ends in zip(part, outputs.start_logits.numpy(), outputs.end_logits.numpy(), strict=True):
            size = len(window.input_ids)
            found = best_answer(window, starts[:size], ends[:size])
            best[window.question_index] = max(best.get(window.question_index, found), found)
    return {
        question.id: squad.contexts[question.context_index][slice(*best[index][1])]
        for index, question in enumerate(squad.questions)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf_dir", required=True, help="config.json, model.safetensors, vocab.txt, tokenizer.json")
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    train = read_squad(flags.train_file, for_training=True, version_2=False)
    dev = read_squad(flags.predict_file, for_training=False, version_2=False)
    tokenizer = AutoTokenizer.from_pretrained(flags.hf_dir)
    torch.manual_seed(flags.seed)
    model = AutoModelForQuestionAnswering.from_pretrained(flags.hf_dir)

    def loss_of(windows):
        positions = {
            name: torch.tensor([getattr(window, field) for window in windows])
            for name, field in (("start_positions", "start_position"), ("end_positions", "end_position"))
        }
        return model(**batch_of(windows), **positions).loss

    began = time.perf_counter()
    num_steps = fine_tune(
        model,
        make_windows(train, tokenizer),
        loss_of,
        batch_size=BATCH_SIZE,
        num_epochs=NUM_EPOCHS,
        learning_rate=flags.learning_rate,
        warmup_proportion=WARMUP_PROPORTION,
        seed=flags.seed,
        length_of=lambda window: len(window.input_ids),
    )
    trained = time.perf_counter()
    predictions = predict(model, dev, make_windows(dev, tokenizer))
    scores = score_answers(dev.gold_texts, predictions, normalization=NORMALIZATIONS["squad"])
    print(
        f"rate {flags.learning_rate:g}, seed {flags.seed}, {num_steps} steps in {trained - began:.0f} s, "
        f"{len(dev.questions)} questions in {time.perf_counter() - trained:.0f} s: "
        f"exact match {scores['exact_match']:.2f}, F1 {scores['f1']:.2f}"
    )


if __name__ == "__main__":
    main()
