#!/usr/bin/env bash
# Small versions of the BERT paper's tables 5 (tasks), 6 (size) and 8 (masking): trains each variant with each seed and prints
# means and standard deviations. Run it again to resume, or with more seeds.
#   CORPUS=sentences.txt HELDOUT=heldout.txt VOCAB=vocab.txt TASK=SST-2 DATA=glue/SST-2 OUTPUT=out/ablation \
#       recipes/ablations/run.sh tasks
set -euo pipefail
recipes=$(dirname "$0")
: "${CONFIG:=$recipes/bert.json}" "${SEEDS:=1 2 3}" "${STEPS:=1000}" "${EPOCHS:=3}" "${LENGTH:=64}" "${BATCH:=32}"
: "${METRIC:=eval_accuracy}"

bert() {
  official-bert "$@" --vocab_file="$VOCAB" --random_seed="$seed" --max_seq_length="$LENGTH" --verbosity=-1
}

records() { # of a text, without masks: for pairs or, with --nouse_next_sentence, for stretches of text
  local file=$1 name=$2 pairs=$3
  shift 3
  records=$OUTPUT/records/$name$pairs-$seed.tfrecord
  mkdir -p "$OUTPUT/records"
  test -f "$records" || bert create_pretraining_data --input_file="$file" --output_file="$records" --masking=none "$pairs" "$@"
}

pretrain() { # name, config, flags that differ from BERT's; all variants predict the same masks of the held-out text
  local name=$1 config=$2 pairs=--use_next_sentence flag
  shift 2
  local evaluation=()
  for flag; do
    case $flag in
      --nouse_next_sentence) pairs=$flag ;;&
      --nouse_next_sentence | --attention_direction=*) evaluation+=("$flag") ;;
    esac
  done
  local shared=(--bert_config_file="$config" --dynamic_masking --do_eval --max_predictions_per_seq=$(((LENGTH * 16 + 99) / 100)))
  for seed in $SEEDS; do
    local run=$OUTPUT/$name/$seed
    test -f "$run/heldout/eval_results.txt" && continue
    records "$CORPUS" train "$pairs" --dupe_factor=5
    bert run_pretraining --input_file="$records" --output_dir="$run/pretrained" --do_train "${shared[@]}" --num_train_steps="$STEPS" \
      --num_warmup_steps=$((STEPS / 10)) --train_batch_size="$BATCH" --learning_rate=1e-3 --max_eval_steps=10 "$@"
    records "$HELDOUT" heldout "$pairs" --dupe_factor=1
    bert run_pretraining --input_file="$records" --output_dir="$run/heldout" --init_checkpoint="$run/pretrained" \
      --max_eval_steps=1000000 "${shared[@]}" "${evaluation[@]}"
  done
}

finetune() { # title of the row, pretrained variant, flags that differ from BERT's
  local title=$1 name=$2 tuned=finetuned${3-}
  shift 2
  for seed in $SEEDS; do
    local run=$OUTPUT/$name/$seed
    test -f "$run/$tuned/eval_results.txt" || bert run_classifier --task_name="$TASK" --data_dir="$DATA" --do_train --do_eval \
      --bert_config_file="$run/pretrained/bert_config.json" --init_checkpoint="$run/pretrained" --output_dir="$run/$tuned" \
      --train_batch_size="$BATCH" --learning_rate=3e-4 --num_train_epochs="$EPOCHS" "$@"
  done
  rows+=("| $title | $(scores heldout masked_lm_loss) | $(scores "$tuned" "$METRIC") |")
}

scores() { # mean and standard deviation of a score over the seeds
  for seed in $SEEDS; do
    sed -n "s/^$2 = //p" "$OUTPUT/$name/$seed/$1/eval_results.txt"
  done | awk '{ sum += $1; squares += $1 ^ 2 } END { mean = sum / NR; var = NR > 1 ? (squares - NR * mean ^ 2) / (NR - 1) : 0
    printf "%.4f | %.4f", mean, (var > 0 ? sqrt(var) : 0) }'
}

rows=("| variant | held-out masked_lm_loss | std | $METRIC | std |" "| --- | ---: | ---: | ---: | ---: |")
case ${1-} in
  tasks)
    pretrain bert "$CONFIG"
    finetune "BERT" bert
    pretrain no_next_sentence "$CONFIG" --nouse_next_sentence
    finetune "no next sentence" no_next_sentence
    pretrain left_to_right "$CONFIG" --nouse_next_sentence --attention_direction=left_to_right
    finetune "left to right, no next sentence" left_to_right
    finetune "left to right, no next sentence + BiLSTM" left_to_right --head=bilstm
    ;;
  masking) # fractions of the chosen wordpieces that become [MASK], stay, or become random ones
    for shares in "0.8 0.1 0.1" "1 0 0" "0.8 0 0.2" "0.8 0.2 0" "0 0.2 0.8" "0 0 1"; do
      read -r mask same random <<< "$shares"
      pretrain "mask_${mask}_random_$random" "$CONFIG" --mask_replace_prob="$mask" --random_replace_prob="$random"
      finetune "[MASK] $mask, same $same, random $random" "mask_${mask}_random_$random"
    done
    ;;
  size)
    for config in "$CONFIG" "$recipes"/size_*.json; do
      name=$(basename "$config" .json)
      pretrain "$name" "$config"
      finetune "$name" "$name"
    done
    ;;
  *)
    echo "usage: run.sh tasks|masking|size, with the variables in its first lines" >&2
    exit 2
    ;;
esac
printf '%s\n' "${rows[@]}"
