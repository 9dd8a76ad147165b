"""Writes this folder's models with `transformers` from Keras, and `tf_models.json.gz`, to FOLDER.

    pip install transformers==4.57.1 tensorflow==2.19.1 tf_keras==2.19.0; python make_tf_models.py FOLDER

`tf_models.json.gz` lists the data sets of each `tf_model.h5`, each with its PyTorch name and whether it is transposed,
as `transformers` converts it. `distilbert_tf_model.h5` here is that of `distilbert/Model`.
"""

import gzip
import json
import pathlib
import sys

import h5py
import safetensors.numpy
import transformers
from transformers.modeling_tf_pytorch_utils import (
    convert_tf_weight_name_to_pt_weight_name,
    load_pytorch_state_dict_in_tf2_model,
)

HERE = pathlib.Path(__file__).parent


def main(target):
    described = {}
    for file in sorted(path.with_name("model.safetensors") for path in HERE.glob("*/*/expected.npz")):
        case = str(file.parent.relative_to(HERE))
        config = transformers.AutoConfig.from_pretrained(file.parent)
        if not hasattr(transformers, f"TF{config.architectures[0]}"):  # ModernBERT was never there
            continue
        config.num_hidden_layers *= getattr(config, "inner_group_num", 1)  # else Keras's ALBERT cannot be called
        state = {with_head_of_keras(name): array for name, array in safetensors.numpy.load_file(file).items()}
        if "predictions.bias" in state:
            state["predictions.decoder.bias"] = state["predictions.bias"]
        model = getattr(transformers, f"TF{config.architectures[0]}")(config)
        load_pytorch_state_dict_in_tf2_model(model, state, allow_missing_keys=True)
        model.save_pretrained(target / case)
        described[case] = describe(target / case / "tf_model.h5")
    with gzip.GzipFile(target / "tf_models.json.gz", "wb", mtime=0) as sink:
        sink.write(json.dumps(described).encode())


def with_head_of_keras(name):
    """Return the older name of a variable of a DeBERTa's masked-LM head."""
    name = name.replace("lm_predictions.lm_head.bias", "cls.predictions.bias")
    return name.replace("lm_predictions.lm_head.", "cls.predictions.transform.")


def describe(path):
    found = {}

    def visit(place, item):
        if isinstance(item, h5py.Dataset):
            variable = place.partition("/")[2]  # without the name of the layer
            name, transpose = convert_tf_weight_name_to_pt_weight_name(variable, tf_weight_shape=item.shape)
            found[place] = name, transpose.value == "simple"

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
