"""Variables of optimizers' tests."""

import keras
import numpy as np


def variable(values, *scopes, name):
    if scopes:
        with keras.name_scope(scopes[0]):
            return variable(values, *scopes[1:], name=name)
    return keras.Variable(np.array(values, np.float32), name=name)
