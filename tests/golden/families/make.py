"""Makes this folder's goldens: small random models of each family, and the outputs of `transformers`.

    python make.py [FAMILY[/HEAD] ...]        # with torch and transformers 5; without arguments all families

`FAMILY/HEAD/` contains a Hugging Face folder (`config.json`, `model.safetensors`) and `expected.npz`: inputs, the
hidden states at every position, the logits, and the losses of ten steps of gradient descent. A family is a row of
`FAMILIES`.
"""

import json
import pathlib
import random
import sys

import numpy as np
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent
SIZES = {
    "vocab_size": 33, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
    "max_position_embeddings": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.3,
}  # fmt: skip
DISTILBERT = {
    "vocab_size": 33, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 16,
    "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0, "initializer_range": 0.3,
}  # fmt: skip
NARROW = SIZES | {"embedding_size": 8}
COMMON = {"ForSequenceClassification": {"num_labels": 3}, "ForTokenClassification": {"num_labels": 5}}
COMMON["ForMultipleChoice"] = {}
# For each family its name in `transformers` classes, its keys, and special settings for each head.
FAMILIES = {
    "bert": ("Bert", SIZES, COMMON | {
        "Model": {"layer_norm_eps": 1e-3}, "ForPreTraining": {"hidden_act": "gelu_new"},
        "ForSequenceClassification": {"type_vocab_size": 1, "num_hidden_layers": 3},
        "ForQuestionAnswering": {"hidden_act": "relu"},
    }),
    "albert": ("Albert", NARROW | {"classifier_dropout_prob": 0.0}, COMMON | {
        "Model": {"num_hidden_groups": 2}, "ForMaskedLM": {"layer_norm_eps": 1e-3},
        "ForPreTraining": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
        "ForSequenceClassification": {"num_hidden_groups": 2, "inner_group_num": 2},
        "ForQuestionAnswering": {"hidden_act": "relu"},
    }),
    "distilbert": ("DistilBert", DISTILBERT, COMMON | {
        "Model": {"n_layers": 1}, "ForMaskedLM": {"activation": "relu"},
        "ForTokenClassification": {"num_labels": 5, "n_layers": 3},
        "ForQuestionAnswering": {"sinusoidal_pos_embds": True},
    }),
    "electra": ("Electra", NARROW, COMMON | {
        "Model": {"layer_norm_eps": 1e-3}, "ForMaskedLM": {"hidden_act": "gelu_new"},
        "ForPreTraining": {"embedding_size": 12}, "ForTokenClassification": {"num_labels": 5, "embedding_size": 12},
        "ForQuestionAnswering": {"num_hidden_layers": 3}, "ForMultipleChoice": {"summary_last_dropout": 0.0},
    }),
}  # fmt: skip
ROBERTA = SIZES | {"max_position_embeddings": 18, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
MPNET = {name: value for name, value in ROBERTA.items() if name != "type_vocab_size"}
ROBERTA_HEADS = COMMON | {
    "Model": {"type_vocab_size": 2}, "ForMaskedLM": {"hidden_act": "relu"},
    "ForQuestionAnswering": {"num_hidden_layers": 3},
}  # fmt: skip
FEW_HEADS = {head: ROBERTA_HEADS[head] for head in ("ForMaskedLM", "ForSequenceClassification")}
DEBERTA = SIZES | {
    "num_hidden_layers": 3, "max_position_embeddings": 32, "relative_attention": True, "position_buckets": 8,
    "pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
}  # fmt: skip
MODERNBERT = {name: value for name, value in SIZES.items() if not name.endswith("prob")} | {
    "num_hidden_layers": 4, "num_attention_heads": 2, "local_attention": 6,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 1),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
}  # fmt: skip
FAMILIES |= {
    "roberta": ("Roberta", ROBERTA, ROBERTA_HEADS),
    "xlm-roberta": ("XLMRoberta", ROBERTA, FEW_HEADS | {"Model": {"num_attention_heads": 2}}),
    "camembert": ("Camembert", ROBERTA, FEW_HEADS | {"ForTokenClassification": {"num_labels": 5}}),
    "mpnet": ("MPNet", MPNET, ROBERTA_HEADS | {"Model": {"max_position_embeddings": 182}}),
    "deberta-v2": ("DebertaV2", DEBERTA, COMMON | {
        "Model": {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 64},
        "ForMaskedLM": {"legacy": False}, "ForSequenceClassification": {"num_labels": 3, "cls_dropout": 0.0},
        "ForQuestionAnswering": {"layer_norm_eps": 1e-3}, "ForMultipleChoice": {"cls_dropout": 0.0},
    }),
    "modernbert": ("ModernBert", MODERNBERT, COMMON | {
        "Model": {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}},
        "ForMaskedLM": {"norm_eps": 1e-3}, "ForSequenceClassification": {"num_labels": 3, "classifier_pooling": "mean"},
        "ForTokenClassification": {"num_labels": 5, "global_attn_every_n_layers": 2},
        "ForQuestionAnswering": {"hidden_activation": "relu"}, "ForMultipleChoice": {"max_position_embeddings": 32},
    }),
}  # fmt: skip
LENGTHS = (9, 5, 7, 2)  # multiplied in models with more positions
RATE, NUM_STEPS = 0.02, 10


def main(families):
    for family, _, only in (given.partition("/") for given in families or FAMILIES):
        name, sizes, heads = FAMILIES[family]
        for head, special in heads.items():
            if only not in ("", head):
                continue
            torch.manual_seed(len(head))
            config = getattr(transformers, f"{name}Config")(**sizes | special, attn_implementation="eager")
            make(getattr(transformers, name + head)(config), HERE / family / head)
        if family == "roberta" and not only:
            make_tokenizer(HERE / family / "tokenizer")


def make(model, folder):
    for parameter in model.parameters():  # biases and scales as well
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else parameter.data.add_(
            torch.randn_like(parameter) * 0.2
        )
    model.tie_weights()
    for module in model.modules():  # here padding embeddings are trained like all others
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    model.save_pretrained(folder)
    inputs, labels = make_inputs(model)
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    found = {name: tensor.numpy() for name, tensor in inputs.items()}
    found["embedding_output"] = outputs.hidden_states[0].numpy()
    found["hidden_states"] = torch.stack(outputs.hidden_states[1:]).numpy()
    found |= {name: tensor.numpy() for name, tensor in outputs.items() if name.endswith(("logits", "pooler_output"))}
    if labels:
        found |= {name: tensor.numpy() for name, tensor in labels.items()}
        found["losses"] = np.array(list(losses(model, inputs, labels)), np.float32)
    np.savez_compressed(folder / "expected.npz", **found)


def make_inputs(model):
    config, random = model.config, np.random.default_rng(7)
    lengths = np.array(LENGTHS) * (config.max_position_embeddings // 16)
    # Padding is in this loss, but these attend to nothing there.
    if type(model).__name__ in ("DebertaV2ForQuestionAnswering", "ModernBertForQuestionAnswering"):
        lengths[:] = max(lengths)
    mask = np.arange(max(lengths)) < lengths[:, None]
    ids = np.where(mask, random.integers(5, config.vocab_size, mask.shape), config.pad_token_id)
    inputs = {"input_ids": ids, "attention_mask": mask.astype(int)}
    if getattr(config, "type_vocab_size", 0):
        inputs["token_type_ids"] = random.integers(0, config.type_vocab_size, mask.shape)
    labels, name = {}, type(model).__name__
    if name.endswith("SequenceClassification"):
        labels["labels"] = random.integers(0, config.num_labels, len(ids))
    elif name.endswith("TokenClassification"):
        labels["labels"] = np.where(mask, random.integers(0, config.num_labels, mask.shape), -100)
    elif name.endswith("QuestionAnswering"):
        labels["start_positions"], labels["end_positions"] = random.integers(0, min(LENGTHS), (2, len(ids)))
    elif name.endswith("MultipleChoice"):  # two contexts, each with two choices
        inputs = {key: values.reshape(2, 2, -1) for key, values in inputs.items()}
        labels["labels"] = random.integers(0, 2, 2)
    elif name.endswith("MaskedLM"):
        labels["labels"] = np.where(mask, ids, -100)
    return tuple({key: torch.from_numpy(value) for key, value in values.items()} for values in (inputs, labels))


def losses(model, inputs, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = model(**inputs, **labels).loss
        loss.backward()
        optimizer.step()
        yield loss.item()


def make_tokenizer(folder):
    """Make a small byte-level BPE, and ids and offsets of texts with all kinds of characters."""
    lines = (HERE.parents[2] / "data" / "demo" / "train.txt").read_text().splitlines()[:600]
    trained = tokenizers.ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(lines, vocab_size=420, special_tokens=specials, show_progress=False)
    folder.mkdir(exist_ok=True)
    trained.save_model(str(folder))
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)  # as in the released tokenizers
    tokenizer = transformers.RobertaTokenizer.from_pretrained(str(folder), mask_token=mask)
    rng, texts = random.Random(5), ["", " ", "The  smith\u00a0said: it's 2,000 \u20ac\n\tand caf\u00e9s."]
    for _ in range(160):
        ranges = ((32, 127), (9, 14), (0x80, 0x370), (0x370, 0xD800), (0xE000, 0x1FBFF))
        ranges = rng.choices(ranges, (9, 2, 2, 2, 1), k=9)
        texts.append("".join(chr(rng.randrange(*each)) for each in ranges) + rng.choice(lines)[: rng.randrange(20)])
    encoded = [tokenizer(text, add_special_tokens=False, return_offsets_mapping=True) for text in texts]
    pair, masked = ("the smith", " and the sheep"), "The <mask> keeps<mask> lantern."
    expected = {
        "texts": texts, "ids": [encoding["input_ids"] for encoding in encoded],
        "offsets": [encoding["offset_mapping"] for encoding in encoded], "pair": pair,
        "pair_ids": tokenizer(*pair)["input_ids"], "masked": masked, "masked_ids": tokenizer(masked)["input_ids"],
    }  # fmt: skip
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
