"""Makes this folder's golden: ten steps of ELECTRA's pretraining with the models of `transformers`.

    python make.py        # with torch and transformers 5

`trajectory.npz` contains `in/*`, ten batches and the uniform noise of all samples; the weights before and after the
steps, `initial/*` and `final/*`, under the names of google-research/electra; and the losses of each step. The optimizer
is BERT's: Adam without bias correction, with weight decay and gradients clipped to a norm of 1. `bert_config.json` is
the discriminator's; the generator has half its width.
"""

import json
import pathlib
import re

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
SIZES = {
    "vocab_size": 33, "embedding_size": 12, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 24, "max_position_embeddings": 10, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
HALF = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
NUM_STEPS, RATE, DECAY, WEIGHT = 10, 1e-3, 0.01, 50
LENGTHS, NUM_MASKS, MASK, CLS = (9, 5, 7, 2), 3, 4, 2


def make_batches(random):
    for _ in range(NUM_STEPS):
        real = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
        ids = np.where(real, random.integers(5, SIZES["vocab_size"], real.shape), 0)
        ids[:, 0] = CLS
        batch = {"input_mask": real.astype(int), "segment_ids": real * random.integers(0, 2, real.shape)}
        batch |= {name: np.zeros((len(ids), NUM_MASKS), int) for name in ("masked_lm_positions", "masked_lm_ids")}
        batch["masked_lm_weights"] = np.zeros((len(ids), NUM_MASKS), np.float32)
        for row, length in enumerate(LENGTHS):
            count = min(NUM_MASKS, length - 1)
            places = np.sort(random.choice(np.arange(1, length), count, replace=False))
            batch["masked_lm_positions"][row, :count] = places
            batch["masked_lm_ids"][row, :count] = ids[row, places]
            batch["masked_lm_weights"][row, :count] = 1
            ids[row, places] = MASK
        yield batch | {"input_ids": ids}


def losses(discriminator, generator, batch, noise):
    batch = {name: torch.from_numpy(values) for name, values in batch.items()}
    ids, weights, labels = batch["input_ids"], batch["masked_lm_weights"], batch["masked_lm_ids"]
    others = {"attention_mask": batch["input_mask"], "token_type_ids": batch["segment_ids"]}
    rows = torch.arange(len(ids))[:, None]
    logits = generator(input_ids=ids, **others).logits[rows, batch["masked_lm_positions"]]  # [B, P, V]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    masked_lm = (each * weights).sum() / (weights.sum() + 1e-5)
    sampled = torch.distributions.Gumbel(0, 1).icdf(noise).add(logits.detach()).argmax(-1)
    original, corrupted = ids.clone(), ids.clone()
    for row, slot in weights.nonzero().tolist():
        place = batch["masked_lm_positions"][row, slot]
        original[row, place], corrupted[row, place] = labels[row, slot], sampled[row, slot]
    scores, real = discriminator(input_ids=corrupted, **others).logits, batch["input_mask"].float()
    replaced = (corrupted != original).float()
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, replaced, reduction="none")
    return masked_lm, WEIGHT * (each * real).sum() / real.sum()


def take_step(parameters, slots):
    gradients = [parameter.grad for parameter in parameters.values()]
    norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        first, second = slots.setdefault(name, [torch.zeros_like(parameter), torch.zeros_like(parameter)])
        gradient = gradient / max(norm, 1)
        first.mul_(0.9).add_(0.1 * gradient)
        second.mul_(0.999).add_(0.001 * gradient**2)
        update = first / (second.sqrt() + 1e-6)
        if not re.search("LayerNorm|bias", name):
            update = update + DECAY * parameter.data
        parameter.data -= RATE * update
        parameter.grad = None


def original_name(name):
    """Return the name of google-research/electra; see `load_tf_weights_in_electra` of transformers 4."""
    name = re.sub(r"\.layer\.(\d+)", r".layer_\1", name).replace("dense_prediction", "dense_1")
    name = name.replace("generator_lm_head.bias", "generator_predictions.output_bias")
    name = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name))
    name = re.sub(r"(embeddings)\.weight$", r"\1", name)
    return re.sub(r"\.weight$", ".kernel", name).replace(".", "/")


def arrays_of(parameters, prefix):
    named = {original_name(name): parameter.detach().numpy().copy() for name, parameter in parameters.items()}
    return {f"{prefix}/{name}": array.T if name.endswith("kernel") else array for name, array in named.items()}


def main():
    torch.manual_seed(1)
    generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**SIZES | HALF))
    discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**SIZES))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    discriminator.electra.embeddings.word_embeddings.padding_idx = None
    parameters = dict(discriminator.named_parameters())
    shared = {id(parameter) for parameter in parameters.values()}
    for name, parameter in generator.named_parameters():
        if id(parameter) not in shared:
            parameters[re.sub(r"^electra\.", "generator.", name)] = parameter
    for parameter in parameters.values():  # biases and scales, too
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    random = np.random.default_rng(3)
    batches = list(make_batches(random))
    noise = random.uniform(size=(len(LENGTHS), NUM_MASKS, SIZES["vocab_size"])).astype(np.float32)
    found = {f"in/{name}": np.stack([batch[name] for batch in batches]) for name in batches[0]} | {"in/noise": noise}
    found |= arrays_of(parameters, "initial")
    slots, taken = {}, []
    for batch in batches:
        masked_lm, replaced_token = losses(discriminator, generator, batch, torch.from_numpy(noise))
        (masked_lm + replaced_token).backward()
        take_step(parameters, slots)
        taken.append([masked_lm.item(), replaced_token.item()])
    np.savez_compressed(HERE / "trajectory.npz", losses=np.array(taken), **found, **arrays_of(parameters, "final"))
    ours = {**SIZES, "family": "electra", "hidden_act": "gelu_erf"}
    (HERE / "bert_config.json").write_text(json.dumps(ours, indent=2) + "\n")


if __name__ == "__main__":
    main()
