"""The BERT model, in Keras and `keras.ops` alone, so that it runs on every Keras backend.

`encoder` is the place to begin. Dimension letters: B batch, S sequence, F/T from/to sequence, N heads, H head width,
D hidden = N*H, I inner width, P predictions a sequence, V vocabulary, C classes.

Layers and models keep Keras's contract: configs, symbolic calls, `.keras` files and dtype policies work for each.

Under Keras's `mixed_bfloat16` and `mixed_float16` policies the variables, the sum of the embeddings, softmax, layer
normalization, means over positions and the logits are float32, and all else is bfloat16 or float16.
"""
