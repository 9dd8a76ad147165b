"""Make models in the formats of TensorFlow 2, and the outputs of their original libraries.

Run it in a separate environment, with tf-models-official 2.20.0, tf-keras 2.20.1, keras-hub 0.32.0, TensorFlow
2.20.0 and sentencepiece; once for each library, which want different versions of Keras:

    TF_USE_LEGACY_KERAS=1 python tests/golden/tf2/make.py garden
    python tests/golden/tf2/make.py keras_hub

Functions are removed from the SavedModels: they take a megabyte each and are not read.
"""

import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "the", "dog", "##s", "run", "##ning", "a", "b", "."]
IDS = np.array([[2, 5, 7, 8, 3, 9, 10, 3], [2, 11, 12, 3, 13, 3, 0, 0]], np.int32)
MASK = np.array([[1] * 8, [1] * 6 + [0] * 2], np.int32)
SEGMENTS = np.array([[0] * 5 + [1] * 3, [0] * 4 + [1] * 2 + [0] * 2], np.int32)
TEXT = "The dogs running. th\N{LATIN SMALL LETTER E WITH ACUTE}"
RNG = np.random.default_rng(0)
SIZES = {"num_layers": 2, "num_attention_heads": 3, "hidden_size": 12}


def fill(variables):
    """Give variables distinct random values, so that mix-ups are noticed."""
    for variable in variables:
        if variable.dtype in ("float32", np.float32):
            variable.assign(RNG.normal(0.0, 0.4, variable.shape).astype(np.float32))


def keep(folder, **expected):
    arrays = {"ids": IDS, "mask": MASK, "segments": SEGMENTS, **expected}
    np.savez_compressed(folder / "expected.npz", **{name: np.array(value) for name, value in arrays.items()})


def new_folder(name):
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    return HERE / name


def outputs_of(model, inputs):
    outputs = model(inputs)
    return {name: outputs[name] for name in ("sequence_output", "pooled_output")}


def garden():
    import tensorflow as tf
    from official.legacy.bert import configs
    from official.modeling import tf_utils
    from official.nlp.configs import encoders
    from official.nlp.modeling import layers, models, networks
    from official.nlp.tools import export_tfhub_lib
    from tensorflow.core.protobuf import saved_model_pb2

    inputs = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": SEGMENTS}
    sizes = {**SIZES, "vocab_size": len(WORDS), "max_sequence_length": 16, "type_vocab_size": 2}

    def write(folder, name, **objects):
        tf.train.Checkpoint(**objects).write(str(folder / name))
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")

    folder = new_folder("garden_pretrainer")
    encoder = networks.BertEncoder(**sizes, intermediate_size=20, dict_outputs=True)
    head = layers.ClassificationHead(inner_dim=12, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder_network=encoder, mlm_activation=tf_utils.get_activation("gelu"), classification_heads=[head]
    )
    positions = np.array([[1, 4], [2, 1]], np.int32)
    model({**inputs, "masked_lm_positions": positions})
    fill(model.variables)
    outputs = model({**inputs, "masked_lm_positions": positions})
    write(folder, "bert_model.ckpt-1", model=model, **model.checkpoint_items)
    # The two classes were trained on the head's output at the first position.
    sequence = outputs_of(encoder, inputs)["sequence_output"]
    pooled = head(sequence, only_project=True)
    logits = {"masked_lm_logits": outputs["mlm_logits"], "next_sentence_logits": outputs["next_sentence"]}
    keep(folder, sequence_output=sequence, pooled_output=pooled, positions=positions, **logits)

    folder = new_folder("garden_classifier")
    encoder = networks.BertEncoder(**sizes, intermediate_size=20)
    model = models.BertClassifier(encoder, 3)
    fill(model.variables)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, global_step=tf.Variable(7, dtype=tf.int64))
    checkpoint.save(str(folder / "ckpt"))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    sequence, pooled = encoder([IDS, MASK, SEGMENTS])
    keep(folder, sequence_output=sequence, pooled_output=pooled, logits=model([IDS, MASK, SEGMENTS]))

    folder = new_folder("garden_encoder_v2")
    encoder = networks.BertEncoderV2(**sizes, inner_dim=20)
    encoder(inputs)
    fill(encoder.variables)
    write(folder, "ckpt", encoder=encoder)
    keep(folder, **outputs_of(encoder, inputs))

    folder = new_folder("garden_albert")
    encoder = networks.AlbertEncoder(**sizes, embedding_width=8, intermediate_size=20, dict_outputs=True)
    fill(encoder.variables)
    write(folder, "bert_model.ckpt", model=encoder)
    (folder / "albert_config.json").write_text(
        '{"vocab_size": 14, "embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2, "num_hidden_groups": 1,\n'
        ' "inner_group_num": 1, "num_attention_heads": 3, "intermediate_size": 20, "hidden_act": "gelu",\n'
        ' "max_position_embeddings": 16, "type_vocab_size": 2}\n'
    )
    keep(folder, **outputs_of(encoder, inputs))

    def export(folder, model, encoder, items, **options):
        """Export in the format of the models on TensorFlow Hub."""
        fill(model.variables)
        with tempfile.TemporaryDirectory() as scratch:
            path = tf.train.Checkpoint(model=model, **items).save(os.path.join(scratch, "ckpt"))
            export_tfhub_lib.export_model(str(folder), model_checkpoint_path=path, **options)
        keep(folder, **outputs_of(tf.saved_model.load(str(folder)), inputs))
        saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
        for graph in saved.meta_graphs:
            graph.ClearField("graph_def")
            graph.ClearField("object_graph_def")
            graph.meta_info_def.ClearField("stripped_op_list")
        (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
        for name in ("keras_metadata.pb", "fingerprint.pb"):
            (folder / name).unlink()

    with tempfile.TemporaryDirectory() as scratch:
        vocab_file, spm_file = os.path.join(scratch, "vocab.txt"), os.path.join(scratch, "30k-clean")
        pathlib.Path(vocab_file).write_text("\n".join(WORDS) + "\n")
        make_sentencepiece(spm_file, scratch)
        folder = new_folder("hub_bert")
        config = configs.BertConfig(
            vocab_size=len(WORDS), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
            max_position_embeddings=16,
        )  # fmt: skip
        core, pretrainer = export_tfhub_lib._create_model(bert_config=config, with_mlm=True)
        items = pretrainer.checkpoint_items
        options = {"bert_config": config, "with_mlm": True, "vocab_file": vocab_file, "do_lower_case": False}
        export(folder, pretrainer, core, items, **options)

        folder = new_folder("hub_albert")
        albert = encoders.AlbertEncoderConfig(
            vocab_size=26, embedding_width=8, hidden_size=12, num_layers=3, num_attention_heads=3, intermediate_size=20,
            max_position_embeddings=16, type_vocab_size=2,
        )  # fmt: skip
        config = encoders.EncoderConfig(type="albert", albert=albert)
        encoder = encoders.build_encoder(config)
        options = {"encoder_config": config, "with_mlm": False, "sp_model_file": spm_file + ".model"}
        export(folder, encoder, encoder, {"encoder": encoder}, **options, do_lower_case=True)

    # Heads whose outputs have the same name.
    for name, model_class, arguments in (
        ("garden_spans", models.BertSpanLabeler, {}),
        ("garden_tags", models.BertTokenClassifier, {"num_classes": 3}),
    ):
        folder = new_folder(name)
        encoder = networks.BertEncoder(**{**sizes, "num_layers": 1}, intermediate_size=20, dict_outputs=True)
        model = model_class(encoder, **arguments)
        fill(model.variables)
        write(folder, "ckpt", model=model)
        outputs = model(inputs)
        keep(
            folder,
            **outputs_of(encoder, inputs),
            **({"tag_logits": outputs["logits"]} if arguments else {"spans": outputs}),
        )


def make_sentencepiece(prefix, scratch, **options):
    import sentencepiece

    text = os.path.join(scratch, "text.txt")
    pathlib.Path(text).write_text("the dog runs . a dog and a cat are running .\n" * 5)
    options = options or {
        "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "normalization_rule_name": "identity",
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=prefix, vocab_size=26, hard_vocab_limit=False, minloglevel=2, **options
    )


def unpadded(inputs, backbone):
    """Return the results of a RoBERTa without those at padding, whose positions differ from the released models'."""
    return {"ids": inputs["token_ids"], "sequence_output": np.where(MASK[..., None], backbone(inputs), np.nan)}


def save(model, folder):
    fill(model.variables)
    model.save_to_preset(str(folder))


def keras_hub():
    import keras_hub as hub

    inputs = {"token_ids": IDS, "padding_mask": MASK, "segment_ids": SEGMENTS}
    sizes = {
        "vocabulary_size": len(WORDS), "num_layers": 2, "num_heads": 3, "hidden_dim": 12, "intermediate_dim": 20,
        "max_sequence_length": 16,
    }  # fmt: skip

    folder = new_folder("keras_hub_bert")
    tokenizer = hub.models.BertTokenizer(WORDS, lowercase=False)
    preprocessor = hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    backbone = hub.models.BertBackbone(**sizes)
    model = hub.models.BertTextClassifier(backbone=backbone, num_classes=3, preprocessor=preprocessor)
    save(model, folder)
    keep(folder, **outputs_of(backbone, inputs), logits=model(inputs), text_ids=tokenizer(TEXT))

    folder = new_folder("keras_hub_albert")
    backbone = hub.models.AlbertBackbone(**sizes, embedding_dim=8, num_groups=2)
    model = hub.models.AlbertMaskedLM(backbone=backbone, preprocessor=None)
    save(model, folder)
    positions = np.array([[1, 4], [2, 1]], np.int32)
    logits = model({**inputs, "mask_positions": positions})
    keep(folder, **outputs_of(backbone, inputs), positions=positions, masked_lm_logits=logits)

    folder = new_folder("keras_hub_distilbert")
    backbone = hub.models.DistilBertBackbone(**{**sizes, "num_layers": 1})
    tokenizer = hub.models.DistilBertTokenizer(["cat" if word == "The" else word for word in WORDS], lowercase=True)
    preprocessor = hub.models.DistilBertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    model = hub.models.DistilBertTextClassifier(backbone=backbone, num_classes=3, preprocessor=preprocessor)
    save(model, folder)
    inputs.pop("segment_ids")
    keep(folder, sequence_output=backbone(inputs), logits=model(inputs), text_ids=tokenizer(TEXT))

    sizes["num_layers"] = 1
    # Padding is 1 in the vocabularies of RoBERTa and XLM-RoBERTa.
    inputs["token_ids"] = np.where(MASK, IDS, 1)
    folder = new_folder("keras_hub_roberta")
    files = HERE.parent / "families" / "roberta" / "tokenizer"
    tokenizer = hub.models.RobertaTokenizer(str(files / "vocab.json"), str(files / "merges.txt"), add_prefix_space=True)
    preprocessor = hub.models.RobertaTextClassifierPreprocessor(tokenizer, sequence_length=12)
    backbone = hub.models.RobertaBackbone(**{**sizes, "vocabulary_size": tokenizer.vocabulary_size()})
    model = hub.models.RobertaTextClassifier(backbone=backbone, num_classes=3, preprocessor=preprocessor)
    save(model, folder)
    keep(folder, **unpadded(inputs, backbone), logits=model(inputs), text_ids=tokenizer(TEXT))

    folder = new_folder("keras_hub_xlm_roberta")
    with tempfile.TemporaryDirectory() as scratch:
        prefix = os.path.join(scratch, "vocabulary")
        make_sentencepiece(prefix, scratch, unk_id=0, bos_id=1, eos_id=2, normalization_rule_name="identity")
        tokenizer = hub.models.XLMRobertaTokenizer(prefix + ".model")
    preprocessor = hub.models.XLMRobertaMaskedLMPreprocessor(tokenizer, sequence_length=12)
    backbone = hub.models.XLMRobertaBackbone(**{**sizes, "vocabulary_size": tokenizer.vocabulary_size()})
    model = hub.models.XLMRobertaMaskedLM(backbone=backbone, preprocessor=preprocessor)
    save(model, folder)
    logits = model({**inputs, "mask_positions": positions})
    expected = {"positions": positions, "masked_lm_logits": logits, "text_ids": tokenizer(TEXT)}
    keep(folder, **unpadded(inputs, backbone), **expected)

    sizes["vocab_size"] = sizes.pop("vocabulary_size")
    inputs = {"token_ids": IDS, "padding_mask": MASK, "segment_ids": SEGMENTS}
    for name, width in (("keras_hub_electra", 8), ("keras_hub_electra_unprojected", sizes["hidden_dim"])):
        folder = new_folder(name)
        tokenizer = hub.models.ElectraTokenizer(WORDS, lowercase=False)
        backbone = hub.models.ElectraBackbone(**sizes, embedding_dim=width)
        save(backbone, folder)
        tokenizer.save_to_preset(str(folder))
        keep(folder, sequence_output=backbone(inputs)["sequence_output"], text_ids=tokenizer(TEXT))


if __name__ == "__main__":
    {"garden": garden, "keras_hub": keras_hub}[sys.argv[1]]()
