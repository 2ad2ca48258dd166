"""TensorProto to NumPy and back, as strict and as plain as TF Serving is about it.

Reads the tensors of a request, judged against the signature's TensorInfo; gives the tensors of a response.
"""

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from gnmt_tf.serving.server.status import StatusCode, StatusError

MAX_REPEATED_ELEMENTS = 1 << 20
"""A short message may repeat one value over a large shape; this bounds what it can make the server allocate."""

_VALUE_FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_STRING: "string_val",
}


def array_from_proto(name: str, proto: tensor_pb2.TensorProto, info: meta_graph_pb2.TensorInfo) -> np.ndarray:
    """The input called `name`, checked against what the signature says of it.

    Returns:
      An array with the dtype of `info` and a shape compatible with it; strings are `bytes` objects.

    Raises:
      StatusError: INVALID_ARGUMENT naming the expected and the given dtype and shape.
    """
    expected, given = _describe(info.dtype, info.tensor_shape), _describe(proto.dtype, proto.tensor_shape)
    shape = tf.TensorShape(info.tensor_shape)
    if proto.tensor_shape.unknown_rank or any(dim.size < 0 for dim in proto.tensor_shape.dim):
        raise StatusError(StatusCode.INVALID_ARGUMENT, f"tensor parsing error: {name}: shape of {given} is not defined")
    if proto.dtype != info.dtype or not shape.is_compatible_with(tf.TensorShape(proto.tensor_shape)):
        raise StatusError(StatusCode.INVALID_ARGUMENT, f'input "{name}": expected {expected}, got {given}')
    num_elements = math.prod(dim.size for dim in proto.tensor_shape.dim)
    if num_elements > max(MAX_REPEATED_ELEMENTS, proto.ByteSize()):
        raise StatusError(
            StatusCode.INVALID_ARGUMENT, f"tensor parsing error: {name}: too few values for the shape of {given}"
        )
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError) as error:
        raise StatusError(StatusCode.INVALID_ARGUMENT, f"tensor parsing error: {name}: {error}") from None
    return array


def proto_from_array(array: np.ndarray) -> tensor_pb2.TensorProto:
    """A TensorProto with its values in the typed field (`float_val`, `string_val`, ...), as TF Serving sends them.

    `tf.make_tensor_proto` would put numbers into `tensor_content`, which clients that read `float_val` do not see.
    """
    dtype = tf.as_dtype(array.dtype)
    field = _VALUE_FIELDS.get(dtype.as_datatype_enum)
    if field is None:
        return tf.make_tensor_proto(array)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
    return proto


def _describe(dtype: int, shape: object) -> str:
    known = tf.TensorShape(shape)
    sizes = "of any shape" if known.rank is None else str([-1 if size is None else size for size in known.as_list()])
    try:
        return f"{tf.as_dtype(dtype).name} {sizes}"
    except TypeError:
        return f"unknown type {dtype} {sizes}"
