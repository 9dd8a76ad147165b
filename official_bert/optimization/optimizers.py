"""The optimizers: AdamWeightDecay, Lamb and their base; a new one is a class and a row of `OPTIMIZERS`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from official_bert.families.family import all_families
from official_bert.optimization.schedules import lookup
from official_bert.support.errors import UserError

_EMBEDDINGS = re.compile(r"(^|/)embeddings/")
_LAYER = re.compile(r"(^|/)encoder/layer_(\d+)/")
NO_DECAY = (r"LayerNorm", r"bias")  # reference values, searched for in a variable's path
CLIP_NORM = 1.0  # reference value


def layers_of(paths: Sequence[str], parameter: str) -> list[int | None]:
    """Return the number of each variable's encoder layer, from 0, or None; raise if the layers share their weights."""
    for family in all_families().values():
        if family.shares_layers and any(family.layer_scope in path for path in paths):
            raise UserError(f"{parameter}: the layers of {family.title} share their weights; leave it out")
    return [int(match[2]) if match else None for match in map(_LAYER.search, paths)]


def rate_multipliers(paths: Sequence[str], decay: float) -> list[float]:
    """Return the learning rate multiplier of each variable; lower layers have lower rates.

    Layer l of L, counted from 0, gets decay^(L - l), the embeddings get decay^(L + 1), and everything else, that is the
    pooler and the heads, gets 1. For example with a decay of 0.9 and two layers: embeddings 0.729, layer 0 0.81, layer
    1 0.9.

    Source: Clark et al., "ELECTRA", 2020, appendix B; Sun et al., "How to Fine-Tune BERT", 2019, section 5.4.3.
    ELECTRA's code multiplies all layers by one more power of decay.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"layer_wise_lr_decay={decay}: must be above 0 and at most 1")
    if decay == 1:
        return [1.0] * len(paths)
    layers = layers_of(paths, f"layer_wise_lr_decay={decay}")
    num_layers = max((layer + 1 for layer in layers if layer is not None), default=0)
    if not num_layers:
        raise ValueError(
            f"layer_wise_lr_decay={decay}: no trainable variable belongs to an encoder layer (no path has "
            "encoder/layer_0/...); leave it out"
        )

    def multiplier(path, layer):
        if layer is not None:
            return decay ** (num_layers - layer)
        return decay ** (num_layers + 1) if _EMBEDDINGS.search(path) else 1.0

    return [multiplier(path, layer) for path, layer in zip(paths, layers, strict=True)]


class MomentOptimizer(keras.optimizers.Optimizer):
    """Optimizer with moving averages of each gradient and its square; subclasses implement `update_step`.

    Gradients are clipped to a global norm of 1, after summing over the devices.

    Attributes:
      slot_names: name suffixes of a variable's two slots, also in checkpoints.
    """

    slot_names: tuple[str, str]

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        *,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        no_decay: Sequence[str] = NO_DECAY,
        frozen: Sequence[keras.Variable] = (),
        layer_wise_lr_decay: float = 1.0,
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          weight_decay_rate: fraction of a weight that is subtracted at a learning rate of 1.
          beta_1: decay of the first moment.
          beta_2: decay of the second moment.
          epsilon: added to the square root of the second moment.
          no_decay: regular expressions; variables whose path matches one are not decayed. Each must match a variable.
          frozen: the model's frozen variables, which also count as matches of an expression.
          layer_wise_lr_decay: ratio of each layer's learning rate to that of the layer above it.
          **options: other options of Keras optimizers; by default, gradients are clipped with `global_clipnorm=1.0`.

        Raises:
          ValueError: `weight_decay` is given, which in Keras decays all variables.
        """
        if options.get("weight_decay") is not None:
            raise ValueError(
                f"{type(self).__name__} does not take weight_decay, which would decay every variable; use "
                "weight_decay_rate"
            )
        super().__init__(learning_rate, **{"global_clipnorm": CLIP_NORM, **options})
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.no_decay = list(no_decay)
        self.layer_wise_lr_decay = layer_wise_lr_decay
        self._frozen_paths = [variable.path for variable in frozen]

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the slots in the strategy's scope; each expression of `no_decay` must match a variable."""
        if self.built:
            return
        paths = [variable.path for variable in variables]
        for pattern in self.no_decay:
            if not any(re.search(pattern, path) for path in (*paths, *self._frozen_paths)):
                raise ValueError(
                    f"no variable path matches {pattern!r} of no_decay; give patterns that match the names of your "
                    "layers, and pass the variables that are not trained as `frozen`"
                )
        # Expressions that match only frozen variables are dropped: a saved optimizer is rebuilt without the variables.
        self.no_decay = [pattern for pattern in self.no_decay if any(re.search(pattern, path) for path in paths)]
        self._is_excluded = [any(re.search(pattern, path) for pattern in self.no_decay) for path in paths]
        self._multipliers = rate_multipliers(paths, self.layer_wise_lr_decay)
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(variables, list(self.slot_names))

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        """Apply the gradients of each replica; called by Keras's `fit` in replica context, not by `Trainer`."""
        if keras.backend.backend() != "tensorflow":
            super().apply(grads, trainable_variables)
            return
        from official_bert.optimization import replicas

        if replicas.num_replicas() == 1:
            super().apply(replicas.dense(grads), trainable_variables)
            return
        check_options(self)
        # Keras clips each replica's gradients separately, so the norm of their sum could exceed the limit.
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        self.build(variables)
        replicas.take_step(self, variables, grads)

    def _rate(self, index: int, learning_rate, dtype):
        return ops.cast(learning_rate, dtype) * self._multipliers[index]

    def _powers(self, dtype):
        """Return beta_1 and beta_2 to the power of the step."""
        step = ops.cast(self.iterations + 1, dtype)
        return ops.power(ops.cast(self.beta_1, dtype), step), ops.power(ops.cast(self.beta_2, dtype), step)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "no_decay": list(self.no_decay),
            "layer_wise_lr_decay": self.layer_wise_lr_decay,
        }


@keras.saving.register_keras_serializable(package="official_bert")
class AdamWeightDecay(MomentOptimizer):
    """Adam with decoupled weight decay, which acts on the weights and not on the moments.

    For each variable with gradient g, clipped to a global norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  w = w - rate * (m / (sqrt(v) + 1e-6) + 0.01 w)
    In the first step m is g / 10 and sqrt(v) is |g| / 32, so the update is 3.16 times the rate; later it is up to 6.6
    times the rate. Bias correction, which PyTorch and Keras always apply, undoes that: the rate is multiplied by
    sqrt(1 - 0.999^step) / (1 - 0.9^step), except for weight decay.

    The slots of a variable are named `adam_m` and `adam_v`, as in the reference's checkpoints.

    Source: the reference's AdamWeightDecayOptimizer; bias correction: Adam paper, section 2.
    """

    slot_names = ("adam_m", "adam_v")

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        *,
        bias_correction: bool = False,
        name: str = "adam_weight_decay",
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          bias_correction: whether to correct for the initial moments of 0.
          name: name of the optimizer.
          **options: options of `MomentOptimizer`.

        Raises:
          ValueError: see `MomentOptimizer`.
        """
        super().__init__(learning_rate, name=name, **options)
        self.bias_correction = bias_correction

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable; the gradient is already summed over the replicas and clipped."""
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        learning_rate = self._rate(index, learning_rate, variable.dtype)
        if self.weight_decay_rate and not self._is_excluded[index]:
            # Decay first: both terms of the reference's update use the old weights.
            self.assign_sub(variable, learning_rate * self.weight_decay_rate * variable)
        first_power, second_power = self._powers(variable.dtype)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.raw_ops.ResourceApplyAdam(  # one pass over memory
                var=variable.handle,
                m=first.value.handle,
                v=second.value.handle,
                beta1_power=first_power,
                beta2_power=second_power,
                lr=learning_rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )
            return
        self.assign(first, self.beta_1 * first + (1 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient))
        rate = learning_rate * ops.sqrt(1 - second_power) / (1 - first_power)
        self.assign_sub(variable, rate * first / (ops.sqrt(second) + self.epsilon))

    def _powers(self, dtype):
        """Return the powers for bias correction; 0 turns it off."""
        if not self.bias_correction:
            return ops.cast(0.0, dtype), ops.cast(0.0, dtype)
        return super()._powers(dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {**super().get_config(), "bias_correction": self.bias_correction}


@keras.saving.register_keras_serializable(package="official_bert")
class Lamb(MomentOptimizer):
    """Adam with bias correction and weight decay, whose update is scaled to the norm of each variable.

    For each variable with gradient g, clipped to a global norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2
      u = (m / (1 - 0.9^step)) / (sqrt(v / (1 - 0.999^step)) + 1e-6) + 0.01 w
      w = w - rate * |w| / |u| * u, where |w| / |u| is 1 if either norm is 0
    The parameters of LayerNorm and the biases are updated without weight decay and without |w| / |u|. The rate is the
    relative change of a variable per step: from 0.0005 to 0.01 in the paper, far above Adam's rates.

    The slots of a variable are named `lamb_m` and `lamb_v`.

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, algorithm 2,
    with phi(z) = z.
    """

    slot_names = ("lamb_m", "lamb_v")

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        *,
        name: str = "lamb",
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          name: name of the optimizer.
          **options: options of `MomentOptimizer`; variables of `no_decay` are not scaled by the ratio of norms either.

        Raises:
          ValueError: see `MomentOptimizer`.
        """
        super().__init__(learning_rate, name=name, **options)

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable; the gradient is already summed over the replicas and clipped."""
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        rate = self._rate(index, learning_rate, variable.dtype)
        first_power, second_power = self._powers(variable.dtype)
        self.assign(first, self.beta_1 * first + (1 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient))
        update = first / (1 - first_power) / (ops.sqrt(second / (1 - second_power)) + self.epsilon)
        if not self._is_excluded[index]:
            update += self.weight_decay_rate * variable
            rate *= _trust_ratio(variable, update)
        self.assign_sub(variable, rate * update)


def _trust_ratio(weights, update):
    """Return the norm of the weights divided by the norm of their update; 1 if either is 0."""
    norms = [ops.sqrt(ops.sum(ops.square(values))) for values in (weights, update)]
    return ops.where(ops.minimum(*norms) > 0, norms[0] / norms[1], ops.ones_like(norms[0]))


# Options that Keras's optimizers implement outside `update_step`.
_OF_APPLY = ("weight_decay", "clipnorm", "clipvalue", "use_ema", "loss_scale_factor", "gradient_accumulation_steps")
# The flag `optimizer` has the same names.
OPTIMIZERS: dict[str, type[keras.optimizers.Optimizer]] = {"adam": AdamWeightDecay, "lamb": Lamb}


def create_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    model: keras.Model,
    options: Mapping[str, Any],
) -> keras.optimizers.Optimizer:
    """Create and build an optimizer in the strategy's scope; training calls only its `update_step`."""
    optimizer_class = lookup(OPTIMIZERS, name, "optimizer")
    frozen = {"frozen": model.non_trainable_weights} if issubclass(optimizer_class, MomentOptimizer) else {}
    try:
        optimizer = optimizer_class(learning_rate, **frozen, **options)
        optimizer.build(model.trainable_variables)
    except (TypeError, ValueError) as error:  # Keras raises both
        raise UserError(f"optimizer={name!r} with optimizer_options={dict(options)}: {error}") from error
    check_options(optimizer)
    return optimizer


def check_options(optimizer: keras.optimizers.Optimizer) -> None:
    """Check that an optimizer has no options that Keras's `apply` supports and the training loop does not."""
    unused = [option for option in _OF_APPLY if getattr(optimizer, option)]
    if unused:
        raise UserError(
            f"{type(optimizer).__name__}: {', '.join(unused)} is not supported in the training loop or on several "
            "devices; leave it out"
        )


def slots_by_name(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> dict[str, keras.Variable]:
    """Name slots as checkpoints do: Keras's `adam_weight_decay/..._kernel_adam_m` is `.../kernel/adam_m`."""
    prefixes = {f"{variable.path.replace('/', '_')}_": variable.path for variable in variables}
    slots = {}
    for slot in optimizer.variables:
        if slot is optimizer.iterations:
            continue
        # The longest match, in case the name of one variable is a prefix of another's.
        prefix = max((prefix for prefix in prefixes if slot.name.startswith(prefix)), key=len, default=None)
        slots[f"{prefixes[prefix]}/{slot.name.removeprefix(prefix)}" if prefix else slot.path] = slot
    return slots
