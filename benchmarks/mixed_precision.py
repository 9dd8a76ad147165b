"""Training and prediction in bfloat16 on the CPU, compared with float32 and with `transformers` under autocast.

  python benchmarks/mixed_precision.py --shapes 4x256 6x384 12x768

A training step is that of `training_step.py`: batches of 32 x 128 tokens, 20 predictions, vocabulary 30,522, dropout
and AdamW on both sides. Prediction is only the encoder, without dropout, on the same batch. The sides alternate in
separate processes; the CPU should have AMX or AVX512-BF16.
"""

import argparse
import json
import os
import sys

import training_step
from common import compare, measure_in_process

WORK = ("training", "prediction")


def architecture_of(shape: str) -> dict[str, int]:
    num_layers, width = map(int, shape.split("x"))
    return {
        "hidden_size": width,
        "num_hidden_layers": num_layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }


def our_prediction(architecture, dtype):
    import tensorflow as tf

    from official_bert.config.bert_config import BertConfig
    from official_bert.modeling.encoder import create_encoder
    from official_bert.modeling.encoder_options import EncoderOptions

    config = BertConfig(vocab_size=training_step.VOCABULARY, type_vocab_size=2, **architecture)
    encoder = create_encoder(config, EncoderOptions(dtype=dtype))
    batch = {name: tf.constant(values, tf.int32) for name, values in training_step.make_batch().items()}
    encode = tf.function(lambda: tf.cast(encoder(batch)["sequence_output"], tf.float32))
    return lambda: encode().numpy()


def peer_prediction(architecture, is_autocast):
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=training_step.VOCABULARY, hidden_act="gelu_new", **architecture)
    model = BertModel(config).eval()
    batch = {name: torch.tensor(values) for name, values in training_step.make_batch().items()}

    def predict():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            model(batch["input_ids"], batch["input_mask"], batch["segment_ids"])

    return predict


def measure(side: str, work: str, shape: str, num_steps: int) -> None:
    architecture = architecture_of(shape)
    dtype = {"bfloat16": "mixed_bfloat16", "float32": "float32"}
    if side == "transformers":
        step = (training_step.peer_step if work == "training" else peer_prediction)(architecture, is_autocast=True)
    elif work == "training":
        step = training_step.our_step(architecture, dtype=dtype[side])
    else:
        step = our_prediction(architecture, dtype[side])
    print(json.dumps({"per_second": training_step.per_second(step, num_steps)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x256", "6x384", "12x768"], help="layers x hidden size")
    parser.add_argument("--peers", nargs="+", default=["float32", "transformers"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=training_step.NUM_STEPS, help="steps per round")
    flags = parser.parse_args()
    for shape in flags.shapes:
        for work in WORK:
            for peer in flags.peers:
                load = os.getloadavg()[0]
                print(f"Mixed precision: {work}, {shape}, ours in bfloat16 against {peer}, load {load:.1f}", flush=True)

                def side(name, work=work, shape=shape):
                    arguments = (name, work, shape, str(flags.steps))
                    return lambda: measure_in_process(__file__, "--side", *arguments)["per_second"]

                compare(f"{work} steps/s", side("bfloat16"), side(peer), peer, rounds=flags.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(*sys.argv[2:5], int(sys.argv[5]))
    else:
        main()
