"""The BERT model, written only in Keras and `keras.ops`, so that it runs on every Keras backend.

Start with `encoder`. Dimension letters: B batch, S sequence, F/T from/to sequence, N heads, H head width, D hidden =
N*H, I inner width, P predictions per sequence, V vocabulary, C classes.

Layers and models keep Keras's contract: configs, symbolic calls, `.keras` files and dtype policies work for each.

Under the `mixed_bfloat16` and `mixed_float16` policies, the variables, the sum of the embeddings, softmax, layer
normalization, means over positions and the logits are float32; everything else is bfloat16 or float16.
"""
