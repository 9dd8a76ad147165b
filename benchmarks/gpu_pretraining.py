"""Pretraining from records to `model.safetensors` for some minutes, where only Keras and JAX are installed.

  KERAS_BACKEND=jax python benchmarks/gpu_pretraining.py --records=records.tfrecord --output_dir=out

It also prints the fraction of the time in which steps wait for their batches: first for steps that only sleep, with
4,000 sequences per second, and then with the losses of real ones.
"""

import argparse
import time

from gpu_training_step import Job

from official_bert import PretrainingModel
from official_bert.data.batches import numpy_batches
from official_bert.data.record_files import count_records
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.training.jax_attention import LAYOUTS
from official_bert.training.jax_devices import DeviceBatches, JaxCluster
from official_bert.training.task import TrainingPlan

# Model, batch size, steps between log lines, and seconds.
PRESETS = {"full": ("base", 256, 100, 160), "tiny": ("tiny", 32, 20, 5)}


class TimedBatches:
    """Batches, and the seconds that they were waited for."""

    def __init__(self, batches: DeviceBatches):
        self.seconds, self.give_back, self._batches = 0.0, batches.give_back, batches

    def __next__(self):
        began = time.perf_counter()
        batch = next(self._batches)
        self.seconds += time.perf_counter() - began
        return batch


def print_waiting(batches: TimedBatches, seconds_a_step: float) -> None:
    next(batches)  # starts the reading
    batches.seconds, num_steps = 0.0, round(10 / seconds_a_step)
    for _ in range(num_steps):
        next(batches)
        time.sleep(seconds_a_step)
    fraction = batches.seconds / (batches.seconds + num_steps * seconds_a_step)
    print(f"steps that only sleep, at 4,000 sequences/s: {fraction:.2%} waiting", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", required=True, help="file with records of 128 positions and 20 predictions")
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--preset", choices=PRESETS, default="full")
    flags = parser.parse_args()
    model_name, size, log_steps, seconds = PRESETS[flags.preset]
    task = PretrainingTask(
        Job("", model_name, 128, size, {"attention_probs_dropout_prob": 0.0}, 0).config,  # without it, fused
        max_seq_length=128,
        max_predictions_per_seq=20,
        eval_batch_size=size,
        encoder_options=EncoderOptions(dtype="mixed_bfloat16", layout=LAYOUTS["auto"]),
    )
    cluster, reading = JaxCluster(), {"batch_size": size, "num_records": count_records(flags.records)}
    batches = TimedBatches(cluster.distribute(numpy_batches([flags.records], task.schema, seed=1, **reading)))
    print_waiting(batches, size / 4000)
    model = task.build_model()
    options = {"num_warmup_steps": 200, "learning_rate": 1e-4, "lr_schedule": "constant"}
    steps = cluster.training_steps(task, model, TrainingPlan(train_batch_size=size, num_train_steps=10**6, **options))
    steps.compile(batches)
    began = now = time.perf_counter()
    while now - began < seconds:
        start, batches.seconds = now, 0.0
        means = {name: values.mean() for name, values in steps.take(batches, log_steps).items()}
        now = time.perf_counter()
        losses = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items() if name.endswith("loss"))
        rate, waiting = log_steps * size / (now - start), batches.seconds / (now - start)
        print(f"step {int(steps.step)}: {losses}, {rate:,.0f} sequences/s, {waiting:.2%} waiting", flush=True)
    path = model.save_checkpoint(f"{flags.output_dir}/model.safetensors")
    batch = next(numpy_batches([flags.records], task.schema, seed=2, **reading))
    for name, saved in (("trained", model), (path, PretrainingModel.from_checkpoint(flags.output_dir))):
        losses = task.losses(saved(batch), batch)
        print(name, {loss: round(float(mean.total / mean.weight), 4) for loss, mean in losses.items()})


if __name__ == "__main__":
    main()
