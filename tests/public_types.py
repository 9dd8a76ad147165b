"""A user's program, for `make lint`: mypy knows every public name, and the types of what it returns."""

from typing import Any, assert_type

import keras
import numpy as np
import tensorflow as tf

import official_bert
from official_bert import BertEncoder, ClassificationModel, Trainer, TrainingPlan, WeightedSum

tokenizer = official_bert.FullTokenizer.from_folder("encoder")
batch = tokenizer(["a fine film", ("great acting", "and a good story")], max_seq_length=128)
assert_type(batch, dict[str, np.ndarray])
model = ClassificationModel(BertEncoder.from_checkpoint("encoder"), num_outputs=2)
assert_type(model.encoder, BertEncoder)
assert_type(model.encoder.config.hidden_size, int)
assert_type(ClassificationModel.from_checkpoint("encoder", num_outputs=2), ClassificationModel)
schedule = official_bert.LinearWarmupThenDecay(5e-5, num_train_steps=6, num_warmup_steps=1)
model.compile(official_bert.AdamWeightDecay(schedule), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
assert_type(official_bert.save_model("out/fitted", model, tokenizer, labels=["bored", "amused"]), str)
assert_type(official_bert.export("out/fitted", "out/serving"), str)
assert_type(official_bert.Predictor("out/fitted").embed("a fine film"), np.ndarray)


class Reviews:
    def build_model(self) -> keras.Model:
        return model

    def losses(self, outputs: Any, batch: Any) -> dict[str, WeightedSum]:
        return {"classification": WeightedSum(tf.reduce_sum(outputs), tf.size(outputs))}

    def predictions(self, outputs: Any, batch: Any) -> dict[str, tf.Tensor]:
        return {"probabilities": tf.nn.softmax(outputs)}


trainer = Trainer(Reviews(), tf.distribute.get_strategy(), seed=1)
plan = TrainingPlan(train_batch_size=2, num_train_steps=6, num_warmup_steps=1, learning_rate=5e-5)
assert_type(trainer.train(plan, lambda used: tf.data.Dataset.range(2), output_dir="o", init_checkpoint=None), bool)
assert_type(trainer.num_replicas, int)
assert_type(official_bert.__version__, str)
