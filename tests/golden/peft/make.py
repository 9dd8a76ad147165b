"""Write an adapter with random weights and what PEFT 0.21 computes with it: python make.py FOLDER.

FOLDER is `pretraining_model`, converted by `official-bert convert_hf_checkpoint --to_hf`.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import BertForSequenceClassification

FOLDER = pathlib.Path(__file__).parent

torch.manual_seed(1)
model = BertForSequenceClassification.from_pretrained(sys.argv[1], num_labels=3)
config = LoraConfig(r=2, lora_alpha=6, target_modules=["query", "value", "intermediate.dense"], task_type="SEQ_CLS")
model = get_peft_model(model, config).eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            parameter.copy_(torch.randn_like(parameter) * 0.3)
rng = np.random.default_rng(2)
mask = (np.arange(12) < np.array([[12], [7], [4]])).astype(np.int32)
ids = (rng.integers(5, 1182, [3, 12]) * mask).astype(np.int32)
segments = ((np.arange(12) > 3) * mask).astype(np.int32)
with torch.no_grad():
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    logits = model(**{name: torch.tensor(array) for name, array in inputs.items()}).logits.numpy()
model.save_pretrained(FOLDER)
(FOLDER / "README.md").unlink()
config_file = FOLDER / "adapter_config.json"
values = json.loads(config_file.read_text())
values |= {"base_model_name_or_path": "pretraining_model", "target_modules": sorted(values["target_modules"])}
config_file.write_text(json.dumps(values, indent=2) + "\n")
np.savez(FOLDER / "outputs.npz", input_ids=ids, input_mask=mask, segment_ids=segments, logits=logits)
