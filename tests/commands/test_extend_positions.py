"""`extend_positions`: a model with more positions than in pretraining."""

import numpy as np
import pytest

from official_bert.checkpoints.editing import with_positions
from official_bert.commands import extend_positions
from official_bert.commands.extend_positions import ExtendPositionsConfig
from official_bert.families.bert import RobertaConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError


def extend(model_dir, out, **flags):
    given = {
        "init_checkpoint": str(model_dir / "bert_model.ckpt"),
        "output_dir": str(out),
        "max_position_embeddings": 150,
        **flags,
    }
    extend_positions.run(ExtendPositionsConfig(**given))


def test_positions_are_repeated_and_all_else_stays(model_dir, vocab_file, tmp_path):
    extend(model_dir, tmp_path / "long", vocab_file=vocab_file)
    old, new = (
        BertEncoder.from_checkpoint(str(model_dir / "bert_model.ckpt")),
        BertEncoder.from_checkpoint(str(tmp_path / "long")),
    )
    assert (old.max_length, new.max_length) == (64, 150)
    table, longer = (np.asarray(encoder.embeddings.position_embeddings) for encoder in (old, new))
    np.testing.assert_array_equal(longer, np.concatenate([table, table, table[:22]]))
    ids = np.arange(60)[None] + 5
    np.testing.assert_array_equal(new(ids)["sequence_output"], old(ids)["sequence_output"])
    assert new(np.tile(ids, 2))["sequence_output"].shape == (1, 120, 32)
    assert (tmp_path / "long" / "vocab.txt").read_bytes() == open(vocab_file, "rb").read()


def test_rows_that_are_no_positions_stay_at_the_beginning():
    config = RobertaConfig(vocab_size=9, max_position_embeddings=6)
    name, table = "bert/embeddings/position_embeddings", np.arange(6.0)[:, None]
    assert with_positions({name: table}, config, 11)[name][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 2]


def test_models_that_cannot_be_extended(model_dir, tmp_path):
    with pytest.raises(UserError, match=r"max_position_embeddings=64: .*bert_config.json has 64 already; give more"):
        extend(model_dir, tmp_path / "out", max_position_embeddings=64)
    other = tmp_path / "bert_config.json"
    other.write_text(
        (model_dir / "bert_config.json")
        .read_text()
        .replace('"max_position_embeddings": 64', '"max_position_embeddings": 32')
    )
    with pytest.raises(UserError, match="position_embeddings has 64 rows, but the model config has 32 positions"):
        extend(model_dir, tmp_path / "out", bert_config_file=str(other))
    assert not (tmp_path / "out").exists()
    extend(model_dir, tmp_path / "out")
    with pytest.raises(UserError, match="out/.* exists already; give another folder"):
        extend(model_dir, tmp_path / "out")
