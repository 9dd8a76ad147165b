"""Optimizers by name, for the training loop; a new one is a module and a row of `OPTIMIZERS`."""

from collections.abc import Mapping
from typing import Any

import keras

from official_bert.optimization.adam_weight_decay import AdamWeightDecay
from official_bert.optimization.lamb import Lamb
from official_bert.optimization.moments import MomentOptimizer
from official_bert.optimization.names import lookup
from official_bert.optimization.replicas import check_options
from official_bert.support.errors import UserError

# The flag `optimizer` has the same names.
OPTIMIZERS: dict[str, type[keras.optimizers.Optimizer]] = {
    "adam": AdamWeightDecay,
    "lamb": Lamb,
}


def create_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    model: keras.Model,
    options: Mapping[str, Any],
) -> keras.optimizers.Optimizer:
    """Create and build an optimizer by name; call this in the scope of the model's strategy.

    The training loop sums the gradients over the replicas, clips them to the optimizer's `global_clipnorm`, and calls
    its `update_step` for each variable. The rest of the update, such as weight decay, belongs in `update_step`.

    Args:
      name: a key of `OPTIMIZERS`.
      learning_rate: a number or a schedule.
      model: the model to train.
      options: keyword arguments of the optimizer.

    Raises:
      UserError: the optimizer is unknown, or the options are not supported by it or by the training loop.
    """
    optimizer_class = lookup(OPTIMIZERS, name, "optimizer")
    frozen = {"frozen": model.non_trainable_weights} if issubclass(optimizer_class, MomentOptimizer) else {}
    try:
        optimizer = optimizer_class(learning_rate, **frozen, **options)
        optimizer.build(model.trainable_variables)
    except (TypeError, ValueError) as error:  # Keras raises both
        raise UserError(f"optimizer={name!r} with optimizer_options={dict(options)}: {error}") from error
    check_options(optimizer)
    return optimizer


def slots_by_name(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> dict[str, keras.Variable]:
    """Name an optimizer's slots as checkpoints do: `.../kernel/adam_m` for the slot `adam_m` of `.../kernel`.

    Keras names it `adam_weight_decay/..._kernel_adam_m`. Slots that belong to no variable keep Keras's name.

    Args:
      optimizer: an optimizer built with the variables.
      variables: the trainable variables.

    Returns:
      Name to slot, for all variables of the optimizer except its step count.
    """
    prefixes = {f"{variable.path.replace('/', '_')}_": variable.path for variable in variables}
    slots = {}
    for slot in optimizer.variables:
        if slot is optimizer.iterations:
            continue
        # The longest match, in case the name of one variable is a prefix of another's.
        prefix = max((prefix for prefix in prefixes if slot.name.startswith(prefix)), key=len, default=None)
        slots[f"{prefixes[prefix]}/{slot.name.removeprefix(prefix)}" if prefix else slot.path] = slot
    return slots
