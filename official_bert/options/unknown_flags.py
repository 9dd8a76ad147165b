"""Messages for unknown flags: flags of other BERT projects, and typos."""

import difflib
from collections.abc import Collection

# Flag names in Hugging Face's examples, the TensorFlow Model Garden and others, with our names for them; the first one
# that the command has is suggested.
_OTHER_NAMES = {
    "accumulation_steps": ("gradient_accumulation_steps",),
    "batch_size": ("train_batch_size",),
    "bert_config": ("bert_config_file",),
    "checkpoint_dir": ("output_dir",),
    "config_file": ("bert_config_file",),
    "config_name": ("bert_config_file",),
    "adam_beta1": ("adam_beta_1",),
    "adam_beta2": ("adam_beta_2",),
    "data_path": ("data_dir", "input_file", "train_file"),
    "dataset_name": ("task_name", "train_file"),
    "dev_file": ("eval_file", "predict_file"),
    "distribution_strategy": ("distribution",),
    "enable_xla": ("use_xla",),
    "epochs": ("num_train_epochs", "num_train_steps"),
    "eval_strategy": ("eval_steps",),
    "evaluation_strategy": ("eval_steps",),
    "load_best_model_at_end": ("use_best_checkpoint",),
    "logging_steps": ("log_steps",),
    "lr": ("learning_rate",),
    "max_length": ("max_seq_length",),
    "max_sequence_length": ("max_seq_length",),
    "max_steps": ("num_train_steps", "num_train_epochs"),
    "mlm_probability": ("masked_lm_prob",),
    "model_dir": ("output_dir",),
    "model_path": ("init_checkpoint",),
    "n_gpu": ("num_replicas",),
    "gpus": ("num_replicas",),
    "lr_scheduler_type": ("lr_schedule",),
    "num_epochs": ("num_train_epochs", "num_train_steps"),
    "num_gpus": ("num_replicas",),
    "num_steps": ("num_train_steps", "num_train_epochs"),
    "optim": ("optimizer",),
    "optimizer_type": ("optimizer",),
    "per_device_eval_batch_size": ("eval_batch_size", "predict_batch_size"),
    "per_device_train_batch_size": ("train_batch_size",),
    "per_gpu_eval_batch_size": ("eval_batch_size", "predict_batch_size"),
    "per_gpu_train_batch_size": ("train_batch_size",),
    "save_steps": ("save_checkpoints_steps",),
    "save_total_limit": ("keep_checkpoint_max",),
    "seed": ("random_seed",),
    "test_file": ("predict_file",),
    "tokenizer_name": ("vocab_file",),
    "sentencepiece_model": ("spm_model_file",),
    "sentencepiece_model_file": ("spm_model_file",),
    "train_data_path": ("train_file", "input_file"),
    "train_epochs": ("num_train_epochs", "num_train_steps"),
    "train_steps": ("num_train_steps", "num_train_epochs"),
    "validation_file": ("eval_file", "predict_file"),
    "warmup_ratio": ("warmup_proportion", "num_warmup_steps"),
    "weight_decay": ("weight_decay_rate",),
    "warmup_steps": ("num_warmup_steps", "warmup_proportion"),
}

_DEVICES = "GPUs are used if TensorFlow finds any; --num_replicas sets how many, CUDA_VISIBLE_DEVICES which ones"
_PRECISION = "--mixed_precision=bfloat16, float16 or auto chooses the number format"
_RESUMING = "the same command resumes from the last checkpoint in --output_dir; use another folder to start a new run"
_CLIPPING = "as in Google's BERT, the gradient norm is clipped to 1.0"
_MODEL_FILES = (
    "give the model as --init_checkpoint=FOLDER, the local folder of a released model, a run or a Hugging Face model"
)

# Flags that have no counterpart here, with advice.
_ADVICE = {
    "amp": _PRECISION,
    "bf16": _PRECISION,
    "device": _DEVICES,
    "do_resume": _RESUMING,
    "dtype": _PRECISION,
    "fp16": _PRECISION,
    "gpu": _DEVICES,
    "max_grad_norm": _CLIPPING,
    "model_name_or_path": _MODEL_FILES,
    "model_type": _MODEL_FILES,
    "no_cuda": _DEVICES,
    "overwrite_output_dir": _RESUMING,
    "resume_from_checkpoint": _RESUMING,
    "use_cuda": _DEVICES,
    "use_fp16": _PRECISION,
    "use_gpu": _DEVICES,
}


def unknown_flag(name: str, flag_names: Collection[str]) -> str:
    """Return the error message for an unknown flag, with advice if there is any.

    Args:
      name: the flag, without its dashes.
      flag_names: the flags of the command.
    """
    message = f"there is no flag --{name}"
    positive = name.removeprefix("no")
    others = [other for other in _OTHER_NAMES.get(name, ()) if other in flag_names]
    advice = _ADVICE.get(name) or _ADVICE.get(positive)
    if others:
        return f"{message}; use --{others[0]}"
    if advice:
        return f"{message}; {advice}"
    similar = difflib.get_close_matches(name, flag_names, n=1, cutoff=0.75)
    if similar:
        return f"{message}; did you mean --{similar[0]}?"
    return f"{message}; --help lists the flags"
