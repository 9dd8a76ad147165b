"""Names of tensors in records, model calls and exports."""

# The inputs of every encoder, each int32 [B, S], in the order of its arguments.
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")

# The number of positions of each text of an example, in records whose texts follow one another.
TEXT_LENGTHS = "text_lengths"

# The output of a frozen encoder, in records and as the input of a separate head.
FEATURES = "features"

# Low-rank updates of kernels: a part of the names of their two factors, Keras's, and the name of their scale.
LORA, LORA_SCALE = "/lora_kernel_", "lora_scale"
