"""The BERT model, in Keras and `keras.ops` alone, so that it runs on every Keras backend.

The path of a variable is its name in a checkpoint of the reference, and its shape is the shape there: layers are nested
and named for that. Dimension letters: B batch, S sequence, F/T from/to sequence, N heads, H head width, D hidden = N*H,
I inner width, P predictions a sequence, V vocabulary, C classes.

Layers and models keep Keras's contract: configs, symbolic calls, `.keras` files and dtype policies work for each.
`model.Encoder` is what the models need of an encoder; `BertEncoder` is one.

Under Keras's `mixed_bfloat16` and `mixed_float16` policies the variables, the sum of the embeddings, softmax, layer
normalization, means over positions and the logits are float32, and all else is bfloat16 or float16.
"""
