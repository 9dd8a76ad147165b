"""Layers of bidirectional LSTM between an encoder and a head."""

import keras

LINEAR, BILSTM = "linear", "bilstm"  # choices of `head`

_NUM_LAYERS = 2  # BERT paper, section 5.3


def bilstm_layers(
    head: str,
    lstm_units: int | None,
    input_width: int,
    dtype_policy: keras.DTypePolicy,
    *,
    returns_sequence: bool = True,
) -> list[keras.layers.Layer]:
    """Makes the layers that a choice of head puts before its linear one, named `lstm_0` and `lstm_1`.

    Call them one after another with `mask`, bool [B, S].

    Args:
      head: "bilstm" for two layers, "linear" for none.
      lstm_units: units per direction; None for `input_width`.
      input_width: D of the vectors that they read, float [B, S, D].
      dtype_policy: the model's.
      returns_sequence: whether the last one gives a vector at every position, float [B, S, 2 * units]; otherwise what
        each direction has seen at its end, float [B, 2 * units].

    Source: BERT paper, sections 5.1 and 5.3.
    """
    if head == LINEAR:
        return []
    if dtype_policy.variable_dtype != "float32":  # the initial weights of an LSTM are orthogonal, which needs float32
        dtype_policy = keras.DTypePolicy(f"mixed_{dtype_policy.compute_dtype}")
    units, layers = lstm_units or input_width, []
    for number in range(_NUM_LAYERS):
        is_sequence = returns_sequence or number < _NUM_LAYERS - 1
        lstm = keras.layers.LSTM(units, return_sequences=is_sequence, dtype=dtype_policy, name="lstm")
        layers.append(keras.layers.Bidirectional(lstm, dtype=dtype_policy, name=f"lstm_{number}"))
        layers[-1].build((None, None, input_width))
        input_width = 2 * units
    return layers


def width_after(layers: list[keras.layers.Layer], input_width: int) -> int:
    """The width of what the layers give, or of what they would read if there are none."""
    return 2 * layers[-1].forward_layer.units if layers else input_width
