"""`Quantizer` of `tensorflow_model_optimization`, imported so that the program around notices nothing.

The package sets TF_USE_LEGACY_KERAS for the whole process and its children when it is imported, which would turn
the `tf.keras` of a program that also uses Keras 3 into Keras 2.
"""

import os

import tensorflow as tf

_VARIABLE = "TF_USE_LEGACY_KERAS"


def _import_quantizer() -> type:
    # TensorFlow decides which Keras it has at the first look, so the look comes before the variable changes.
    getattr(tf.keras, "version", None)
    before = os.environ.get(_VARIABLE)
    try:
        from tensorflow_model_optimization.quantization.keras.quantizers import Quantizer
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before
    return Quantizer


Quantizer = _import_quantizer()
