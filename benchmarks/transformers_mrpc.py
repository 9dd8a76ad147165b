r"""Fine-tuning on MRPC with PyTorch and `transformers`, the peer of `run_classifier.py --task_name=mrpc`.

  python benchmarks/transformers_mrpc.py --hf_dir encoder_hf --data_dir MRPC --learning_rates 5e-5,1e-4,2e-4 --seeds 1

Batches of 32 pairs of similar lengths, 3 epochs, at most 128 wordpieces, padded to the longest of the batch. Needs the
`bench` extra.
"""

import argparse
import random
import time

import torch
from torch_finetuning import fine_tune
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from official_bert.metrics.classification import METRICS
from official_bert.tasks.classification.datasets.published import DATASETS

BATCH_SIZE, NUM_EPOCHS, WARMUP_PROPORTION, MAX_SEQ_LENGTH = 32, 3.0, 0.1, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hf_dir", required=True, help="config.json, model.safetensors, vocab.txt")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--learning_rates", default="5e-5,1e-4,2e-4")
    parser.add_argument("--seeds", default="1")
    flags = parser.parse_args()
    dataset = DATASETS["mrpc"]
    train, dev = (dataset.examples(flags.data_dir, split) for split in ("train", "dev"))
    train_labels, dev_labels = dataset.check_labels(train), dataset.check_labels(dev)
    tokenizer = AutoTokenizer.from_pretrained(flags.hf_dir)

    def inputs(examples) -> dict[str, torch.Tensor]:
        return tokenizer(
            [example.text_a for example in examples],
            [example.text_b for example in examples],
            truncation=True,
            max_length=MAX_SEQ_LENGTH,
            padding=True,
            return_tensors="pt",
        )

    for learning_rate in map(float, flags.learning_rates.split(",")):
        for seed in map(int, flags.seeds.split(",")):
            torch.manual_seed(seed)
            random.seed(seed)
            model = AutoModelForSequenceClassification.from_pretrained(flags.hf_dir, num_labels=2)

            def loss_of(batch, model=model):
                examples, labels = zip(*batch, strict=True)
                return model(**inputs(examples), labels=torch.tensor(labels)).loss

            began = time.perf_counter()
            num_steps = fine_tune(
                model,
                list(zip(train, train_labels, strict=True)),
                loss_of,
                batch_size=BATCH_SIZE,
                num_epochs=NUM_EPOCHS,
                learning_rate=learning_rate,
                warmup_proportion=WARMUP_PROPORTION,
                seed=seed,
                length_of=lambda example: len(example[0].text_a) + len(example[0].text_b),
            )
            seconds = time.perf_counter() - began
            with torch.no_grad():
                parts = [dev[start : start + BATCH_SIZE] for start in range(0, len(dev), BATCH_SIZE)]
                decided = torch.cat([model(**inputs(part)).logits.argmax(-1) for part in parts]).numpy()
            accuracy, f1 = (METRICS[name](dev_labels, decided) for name in ("accuracy", "f1"))
            print(
                f"rate {learning_rate:g}, seed {seed}, {num_steps} steps in {seconds:.0f} s: "
                f"accuracy {100 * accuracy:.1f}, F1 {100 * f1:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
