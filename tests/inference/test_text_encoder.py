"""Vectors of texts from any layers, compared with the encoder applied to one text at a time."""

import dataclasses
import itertools
import math
import types

import numpy as np
import pytest

from official_bert.config import bert_config
from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import NO_PROMPTS
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.text_encoder import TextEncoder, VectorSettings
from official_bert.metrics.retrieval import Bm25Weights
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.sentence import SentenceModel
from official_bert.serving.text_model import Devices, TensorFlowEngine

pytestmark = pytest.mark.slow

WORDS = ["the", "town", "woke", "before", "harbour", "crates", "marta", "counted", "twice"]
TEXTS = [TextOrPair(" ".join(itertools.islice(itertools.cycle(WORDS), count))) for count in (20, 1, 7, 0, 13, 2, 28)]
TEXTS += [TextOrPair("the town", "woke before the harbour"), TextOrPair("a b c d e", "f")]
LAYERS = (-1, 0, -3)


@pytest.fixture(scope="module")
def plain(model_dir):
    return BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt")


@pytest.fixture(scope="module")
def unpadded(model_dir):
    return BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt", layout=UnpaddedLayout)


def alone(plain, tokenizer, text, max_seq_length=64):
    """Return the vectors of a text encoded alone, [S, K, D]."""
    batch = tokenizer([tuple(text)], max_seq_length=max_seq_length)
    outputs = plain(batch)["encoder_layers"]
    return np.stack([np.array(outputs[layer])[0] for layer in LAYERS], axis=1)


def extracted(encoder, tokenizer, texts=TEXTS, *, strategy=None, fixed_shape=None, **settings):
    settings = VectorSettings(LAYERS, **{"max_seq_length": 64, **settings})
    devices = Devices(strategy, fixed_shape)
    extractor = TextEncoder(encoder, tokenizer, settings, batch_size=3, devices=devices)
    return list(extractor.features(texts))


@pytest.mark.endurance
@pytest.mark.parametrize(("most_numbers", "length", "num_batches"), [(1 << 26, 64, 2), (1, 6, len(TEXTS))])
def test_vectors_are_those_of_each_text_alone_in_order(
    plain, unpadded, tokenizer, monkeypatch, most_numbers, length, num_batches
):
    real, sizes = TensorFlowEngine.all, []

    def spied(self, batches):
        batches = list(batches)
        sizes.extend(len(batch["input_ids"]) for batch in batches)
        return real(self, batches)

    monkeypatch.setattr(TensorFlowEngine, "all", spied)
    monkeypatch.setattr(bert_config, "_MOST_NUMBERS", most_numbers)
    features = extracted(unpadded, tokenizer, max_seq_length=length)
    assert len(sizes) == num_batches and sum(sizes) == len(TEXTS)
    assert [text.index for text in features] == list(range(len(TEXTS)))
    for text, found in zip(TEXTS, features, strict=True):
        assert found.input_ids == tokenizer([tuple(text)], max_seq_length=length)["input_ids"][0].tolist()
        np.testing.assert_allclose(found.vectors, alone(plain, tokenizer, text, length), atol=1e-5)


@pytest.mark.endurance
def test_poolings_are_concatenated_and_may_leave_special_tokens_out(plain, unpadded, tokenizer):
    features = extracted(unpadded, tokenizer, pooling=("cls", "mean_no_special", "max_no_special", "mean"))
    for text, found in zip(TEXTS, features, strict=True):
        vectors = alone(plain, tokenizer, text)
        words = vectors[[piece not in (tokenizer.cls_id, tokenizer.sep_id) for piece in found.input_ids]]
        words = words if len(words) else np.zeros_like(vectors[:1])
        wanted = [vectors[0], words.mean(axis=0), words.max(axis=0), vectors.mean(axis=0)]
        np.testing.assert_allclose(found.vectors, np.concatenate(wanted), atol=1e-5)


def test_four_layers_are_summed_or_concatenated(tokenizer, one_layer_config_file):
    config = BertConfig.from_json_file(one_layer_config_file)
    encoder = TextEncoder(BertEncoder(dataclasses.replace(config, num_hidden_layers=4)), tokenizer)
    texts, settings = ["the town", ("woke", "")], {"max_seq_length": None, "batch_size": 2}
    each = encoder.with_settings(VectorSettings((-4, -3, -2, -1), "mean")).features(
        [TextOrPair("the town"), TextOrPair("woke")]
    )
    each = np.stack([text.vectors for text in each])
    joined, added = (encoder.embed(texts, pooling=f"{name}_last_four", **settings) for name in ("concat", "sum"))
    np.testing.assert_allclose(joined, each.reshape(2, -1), atol=1e-6)
    np.testing.assert_allclose(added, each.sum(axis=1), atol=1e-6)
    assert encoder.embed([], pooling="concat_last_four", **settings).shape == (0, joined.shape[1])


@pytest.mark.endurance
def test_bm25_is_the_mean_with_weights_counted_by_hand(plain, unpadded, tokenizer):
    texts = [TextOrPair(text) for text in ("the town the town the crates", "the town woke", "the harbour", "")]
    wordpieces = [tokenizer.encode(text.text_a) for text in texts]
    weights = Bm25Weights.fit(wordpieces, len(tokenizer))
    extractor = TextEncoder(unpadded, tokenizer, VectorSettings(LAYERS, "bm25", max_seq_length=64), bm25=weights)
    average = sum(map(len, wordpieces)) / 4
    for text, ids, found in zip(texts, wordpieces, extractor.features(texts), strict=True):
        expected, total = np.zeros(found.vectors.shape), 0.0
        for piece, vector in zip(ids, alone(plain, tokenizer, text)[1:-1], strict=True):
            num_with = sum(piece in others for others in wordpieces)
            idf = math.log(1 + (4 - num_with + 0.5) / (num_with + 0.5))
            count = ids.count(piece)
            of_sentence = idf * count * (1.2 + 1) / (count + 1.2 * (1 - 0.75 + 0.75 * len(ids) / average))
            expected += of_sentence / count * vector
            total += of_sentence / count
        np.testing.assert_allclose(found.vectors, expected / (total or 1), atol=1e-5)


@pytest.mark.endurance
def test_windows_keep_every_wordpiece_and_average(plain, unpadded, tokenizer):
    text = TEXTS[6]  # 28 words, at least as many wordpieces
    found, short = extracted(unpadded, tokenizer, [text, TEXTS[2]], max_seq_length=12, use_windows=True)
    np.testing.assert_allclose(short.vectors, alone(plain, tokenizer, TEXTS[2]), atol=1e-5)
    ids = tokenizer.encode(text.text_a)
    assert found.input_ids == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    total, count, windows = np.zeros(found.vectors.shape), np.zeros(len(found.input_ids)), []
    for start in range(0, len(ids) - 10 + 5, 5):
        piece = ids[start : start + 10]
        row = np.array([[tokenizer.cls_id, *piece, tokenizer.sep_id]], np.int32)
        outputs = plain(row)["encoder_layers"]
        vectors = np.stack([np.array(outputs[layer])[0] for layer in LAYERS], axis=1)
        places = [0, *range(1 + start, 1 + start + len(piece)), len(ids) + 1]
        total[places] += vectors
        count[places] += 1
        windows.append(vectors)
    assert len(windows) > 2
    np.testing.assert_allclose(found.vectors, total / count[:, None, None], atol=1e-5)
    pooling = ("mean", "max", "max_no_special")
    (found,) = extracted(unpadded, tokenizer, [text], max_seq_length=12, use_windows=True, pooling=pooling)
    wanted = [np.mean([vectors.mean(axis=0) for vectors in windows], axis=0)]
    for some in (slice(None), slice(1, -1)):
        wanted.append(np.max([vectors[some].max(axis=0) for vectors in windows], axis=0))
    np.testing.assert_allclose(found.vectors, np.concatenate(wanted), atol=1e-5)


def test_each_window_of_a_pair_contains_the_shorter_text(unpadded, tokenizer):
    text = TextOrPair("the town", TEXTS[6].text_a)
    (found,) = extracted(unpadded, tokenizer, [text], max_seq_length=16, use_windows=True)
    first, second = map(tokenizer.encode, text)
    assert found.input_ids == [tokenizer.cls_id, *first, tokenizer.sep_id, *second, tokenizer.sep_id]
    assert np.isfinite(found.vectors).all()
    assert found.vectors.shape == (len(found.input_ids), 3, 32)


def test_a_pool_is_bounded_in_texts_and_bytes(unpadded, tokenizer, monkeypatch):
    num_read = 0

    def endless():
        nonlocal num_read
        while True:
            num_read += 1
            yield TEXTS[0]

    extractor = TextEncoder(unpadded, tokenizer, VectorSettings(LAYERS, pooling="mean"), batch_size=2)
    features = extractor.features(endless())
    for _ in range(200):
        next(features)
    assert num_read == 256  # two pools of 64 batches of 2
    num_read = 0
    extractor = TextEncoder(unpadded, tokenizer, VectorSettings(LAYERS), batch_size=1000)
    monkeypatch.setattr("official_bert.inference.text_encoder.POOLED_BYTES", 100_000)
    next(extractor.features(endless()))
    bytes_of_text = 4 * 3 * 32 * len(next(extractor.features([TEXTS[0]])).input_ids)
    assert 100_000 <= num_read * bytes_of_text < 100_000 + bytes_of_text


def test_several_devices_and_fixed_shapes_give_the_same(plain, tokenizer, two_devices, model_dir):
    texts = TEXTS[:4]
    with two_devices.scope():
        mirrored = BertEncoder.from_checkpoint(model_dir / "bert_model.ckpt", layout=UnpaddedLayout)
    for encoder, options in ((mirrored, {"strategy": two_devices}), (plain, {"fixed_shape": (3, 64)})):
        for text, found in zip(texts, extracted(encoder, tokenizer, texts, **options), strict=True):
            np.testing.assert_allclose(found.vectors, alone(plain, tokenizer, text), atol=1e-5)


def test_the_head_of_a_run_may_pool_other_layers(unpadded, tokenizer):
    settings = VectorSettings(pooling="model", max_seq_length=64)
    model = SentenceModel(unpadded, poolings=("second_to_last", "cls"))
    head = types.SimpleNamespace(model=model, prompts=NO_PROMPTS, is_default=True)
    texts = TEXTS[:2]
    found = TextEncoder(unpadded, tokenizer, settings, head=head).features(texts)
    for text, features in zip(texts, found, strict=True):
        expected = model(tokenizer([tuple(text)], max_seq_length=64))
        np.testing.assert_allclose(features.vectors, expected, atol=1e-5)
    long = TextOrPair("the town of the river " * 10)
    windows = settings._replace(max_seq_length=12, use_windows=True)
    (features,) = TextEncoder(unpadded, tokenizer, windows, head=head).features([long])
    assert features.vectors.shape == (1, 2 * unpadded.config.hidden_size)
