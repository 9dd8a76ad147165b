"""The training loss of classes of unequal size or importance; evaluation always reports the plain cross-entropy."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official_bert.support.errors import UserError, format_names

_LEAST_DOUBT = 1e-7  # of 1 - p; below 1, a power of 0 has an infinite slope


@dataclasses.dataclass(frozen=True)
class ClassLoss:
    """Cross-entropy of C classes with weights, smoothed labels and less weight on easy examples.

    Attributes:
      class_weights: weight of the examples of each class, C numbers; None for 1 each.
      label_smoothing: fraction of each example's label that is spread evenly over all classes.
      focal_gamma: exponent of (1 - p), by which the loss of a class with probability p is multiplied; 0 for no effect.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2016), section 7; Lin et al.,
    "Focal Loss for Dense Object Detection" (2017), section 3.
    """

    class_weights: Sequence[float] | None = None
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    def __call__(self, labels: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute the loss of each example and its share in the mean of a batch.

        The sum of the losses divided by the sum of the weights is PyTorch's `CrossEntropyLoss(weight,
        label_smoothing)`.

        Args:
          labels: int32 [B], the true classes.
          logits: float32 [B, C].

        Returns:
          Losses, float32 [B], already multiplied by the weights; and the weights of the true classes, float32 [B].
        """
        num_classes = logits.shape[-1]
        weights = tf.constant(self.class_weights or [1.0] * num_classes, tf.float32)  # [C]
        is_label = tf.one_hot(labels, num_classes)  # [B, C]
        targets = is_label * (1 - self.label_smoothing) + self.label_smoothing / num_classes
        log_probabilities = tf.nn.log_softmax(logits)
        losses = -targets * weights * log_probabilities  # [B, C]
        if self.focal_gamma:
            doubts = tf.maximum(-tf.math.expm1(log_probabilities), _LEAST_DOUBT)
            losses *= doubts**self.focal_gamma
        return tf.reduce_sum(losses, axis=-1), tf.gather(weights, labels)


def balanced_weights(labels: Sequence[int], names: Sequence[str]) -> list[float]:
    """Return weights by which all classes count the same in total: N / (C * number of examples of the class).

    Classes of 90 and 10 examples get 0.56 and 5. The mean weight of an example is 1.

    Args:
      labels: the classes of N training examples.
      names: names of the C classes.

    Raises:
      UserError: a class has no example.

    Source: King and Zeng, "Logistic Regression in Rare Events Data" (2001); scikit-learn's `class_weight="balanced"`.
    """
    counts = np.bincount(labels, minlength=len(names))
    if not counts.all():
        missing = format_names(name for name, count in zip(names, counts, strict=True) if not count)
        raise UserError(f"class_weights=balanced: no training example has the label {missing}; give the weights")
    return (len(labels) / (len(names) * counts)).tolist()
