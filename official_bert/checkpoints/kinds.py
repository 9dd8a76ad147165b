"""Tell the arrays of a BERT from those of an ALBERT, by their names."""

from collections.abc import Collection

from official_bert.support.errors import UserError

_OWN, _SHARED = "/encoder/layer_0/", "/encoder/transformer/group_0/"  # in the names of BERT's layers and of ALBERT's


def check_kind(source: str, missing: Collection[str], there: Collection[str]) -> None:
    """Raises if a BERT's variables are wanted of an ALBERT's checkpoint, or the other way round.

    Args:
      source: the checkpoint, for messages.
      missing: names of variables that it lacks.
      there: those that it has.

    Raises:
      UserError: the names are of the two; the message says which config is needed.
    """
    if any(_SHARED in name for name in there) and any(_OWN in name for name in missing):
        raise UserError(
            f"{source} has ALBERT's shared layers, and the config is a BERT's; give the albert_config.json that "
            "belongs to the checkpoint"
        )
    if any(_OWN in name for name in there) and any(_SHARED in name for name in missing):
        raise UserError(
            f"{source} has the layers of a BERT, each with weights of its own, and the config is an ALBERT's "
            "(num_hidden_groups); give the bert_config.json that belongs to the checkpoint"
        )
