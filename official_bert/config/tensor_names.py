"""The names that tensors have everywhere: in records, in the calls of models and in exports."""

# What every encoder reads, each int32 [B, S], in the order of its arguments.
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")

# What a frozen encoder computed, in records and as the input of the head alone.
FEATURES = "features"
