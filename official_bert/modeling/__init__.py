"""The BERT model, in Keras and `keras.ops` alone, so that it runs on every Keras backend.

The path of a variable is its name in a checkpoint of the reference, and its shape is the shape there: layers are nested
and named for that. Dimension letters: B batch, S sequence, F/T from/to sequence, N heads, H head width, D hidden = N*H,
I inner width, P predictions a sequence, V vocabulary.

Under Keras's `mixed_bfloat16` policy the variables, the sum of the embeddings, softmax, layer normalization, means over
positions and the logits are float32, and all else is bfloat16.
"""
