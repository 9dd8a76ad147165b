"""Makes small models of `transformers` with task heads, and the outputs of its pipelines.

    python tests/golden/families/make_answers.py

Needs transformers 5 and PyTorch. The tests read only its output: the folders `answers/FAMILY_HEAD` beside it.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
import transformers
from transformers import pipeline

FOLDER = pathlib.Path(__file__).parent / "answers"
SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the a cat zoe keeps bees in spring who letters paris anna goes to rome . , ? un ##able ##s ##ing walk"
VOCABULARY = [*SPECIAL, *WORDS.split(" ")]
SIZES = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 40, "initializer_range": 0.7}
BERT_SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
DISTILBERT_SIZES = {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12}
FAMILIES = {
    "bert": ("Bert", BERT_SIZES, ("labels", "several", "number", "tags", "spans", "masks")),
    "distilbert": ("DistilBert", DISTILBERT_SIZES, ("labels", "spans")),
    "electra": ("Electra", {**BERT_SIZES, "embedding_size": 6}, ("tags", "masks")),
    "roberta": (
        "Roberta",
        {**BERT_SIZES, "vocab_size": 420, "max_position_embeddings": 42, "pad_token_id": 1, "layer_norm_eps": 1e-5},
        ("labels", "masks"),
    ),
}
TEXTS = ["The cat goes to Paris!", "zoe keeps bees , walking cats", "Anna"]
QUESTION, CONTEXT = "who keeps bees ?", "In spring Zoe keeps bees, the cat walks to Rome. "
HEADS = {
    "labels": ("ForSequenceClassification", {"id2label": {0: "bad, sad", 1: "soso", 2: "naïf"}}),
    "several": ("ForSequenceClassification", {"num_labels": 3, "problem_type": "multi_label_classification"}),
    "number": ("ForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "tags": ("ForTokenClassification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}),
    "spans": ("ForQuestionAnswering", {}),
    "masks": ("ForMaskedLM", {}),
}


def answers(folder: str, head: str) -> list:
    """Return texts with the pipeline's output: the label or wordpiece, and its score."""
    if head == "spans":
        return [[[QUESTION, CONTEXT], best_spans(folder)]]
    if head == "masks":
        fill = pipeline("fill-mask", model=folder, top_k=5)
        texts = ["the [MASK] goes to paris .", "[MASK] keeps [MASK]"]
        texts = [text.replace("[MASK]", fill.tokenizer.mask_token) for text in texts]
        found = [fill(text) for text in texts]
        return [
            [text, [[[word["token_str"], word["score"]] for word in mask] for mask in masks]]
            for text, masks in zip(texts, [[found[0]], found[1]], strict=True)
        ]
    if head == "tags":
        tag = pipeline("token-classification", model=folder, ignore_labels=[])
        return [[text, [[p["word"], p["entity"], float(p["score"]), p["start"]] for p in tag(text)]] for text in TEXTS]
    classify = pipeline("text-classification", model=folder, top_k=None)
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    rows = [*((text, classify(text)[0]) for text in TEXTS), (TEXTS[:2], classify(pair))]
    return [[text, [[label["label"], label["score"]] for label in labels]] for text, labels in rows]


def best_spans(folder: str) -> list:
    """Return the best answers and their probabilities among the 20 best, by the sums of the model's logits."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    inputs = tokenizer(QUESTION, CONTEXT, return_offsets_mapping=True, return_tensors="pt")
    places, of_context = inputs.pop("offset_mapping")[0].tolist(), [part == 1 for part in inputs.sequence_ids(0)]
    with torch.no_grad():
        outputs = model(**inputs)
    starts, ends = outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()
    spans = [
        (starts[first] + ends[last], places[first][0], places[last][1])
        for first in range(len(places))
        for last in range(first, min(first + 30, len(places)))
        if of_context[first] and of_context[last]
    ]
    best = sorted(spans, reverse=True)[:20]
    shares = np.exp([score for score, _, _ in best])
    shares /= shares.sum()
    return [
        [CONTEXT[start:end], share, start] for (_, start, end), share in zip(best[:5], shares.tolist(), strict=False)
    ]


def write_tokenizer(folder: pathlib.Path, family: str) -> None:
    """Write the files of the family's tokenizer."""
    settings = {"model_max_length": 40}
    if family == "roberta":
        mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True}  # as in the released models
        settings |= {"tokenizer_class": "RobertaTokenizer", "mask_token": mask}
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(FOLDER.parent / "roberta" / "tokenizer" / name, folder)
    else:
        settings |= {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")


def main() -> None:
    """Write all folders."""
    for family, (prefix, sizes, heads) in FAMILIES.items():
        for head in heads:
            suffix, keys = HEADS[head]
            folder = FOLDER / f"{family}_{head}"
            folder.mkdir(parents=True, exist_ok=True)
            if "id2label" in keys:
                keys = {**keys, "label2id": {label: number for number, label in keys["id2label"].items()}}
            torch.manual_seed(5)
            config = getattr(transformers, f"{prefix}Config")(**{**SIZES, **sizes, **keys})
            model = getattr(transformers, prefix + suffix)(config)
            for name, parameter in model.named_parameters():  # the initial ones are all zero and one
                if parameter.dim() == 1:
                    torch.nn.init.normal_(parameter, float(name.endswith("LayerNorm.weight")), 0.3)
            model.save_pretrained(folder)
            (folder / "model.safetensors").chmod(0o644)
            write_tokenizer(folder, family)
            found = json.dumps(answers(str(folder), head), indent=1, ensure_ascii=False)
            (folder / "answers.json").write_text(found + "\n")


if __name__ == "__main__":
    main()
