"""The few messages of the TF Serving API that a client needs, without TensorFlow.

The generated modules of `tensorflow-serving-api` import all of TensorFlow, which takes seconds: too long for a command
that only asks. These have the same field numbers, so the bytes are the same; a test holds them against the
generated ones.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "gnmt_client"
DT_STRING = 7
"""TensorFlow's number for strings."""

_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
    "bool": _Field.TYPE_BOOL,
}

_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "Dim": [("size", 1, "int64")],
    "TensorShape": [("dim", 2, "repeated Dim")],
    "Tensor": [
        ("dtype", 1, "int32"),
        ("tensor_shape", 2, "TensorShape"),
        ("tensor_content", 4, "bytes"),
        ("float_val", 5, "repeated float"),
        ("string_val", 8, "repeated bytes"),
        ("bool_val", 11, "repeated bool"),
    ],
    # A protobuf map is, on the wire, a repeated message of key and value.
    "NamedTensor": [("key", 1, "string"), ("value", 2, "Tensor")],
    "ModelSpec": [("name", 1, "string"), ("version", 2, "Int64Value"), ("signature_name", 3, "string")],
    "PredictRequest": [("model_spec", 1, "ModelSpec"), ("inputs", 2, "repeated NamedTensor")],
    "PredictResponse": [("outputs", 1, "repeated NamedTensor"), ("model_spec", 2, "ModelSpec")],
    "StatusProto": [("error_code", 1, "int32"), ("error_message", 2, "string")],
    "ModelVersionStatus": [("version", 1, "int64"), ("state", 2, "int32"), ("status", 3, "StatusProto")],
    "GetModelStatusRequest": [("model_spec", 1, "ModelSpec")],
    "GetModelStatusResponse": [("model_version_status", 1, "repeated ModelVersionStatus")],
}


def _field(name: str, number: int, kind: str) -> descriptor_pb2.FieldDescriptorProto:
    field = _Field(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.startswith("repeated "):
        field.label, kind = _Field.LABEL_REPEATED, kind.removeprefix("repeated ")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}" if kind in _MESSAGES else f".google.protobuf.{kind}"
    return field


def _build() -> dict[str, type]:
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    file = descriptor_pb2.FileDescriptorProto(
        name="gnmt_client.proto", package=_PACKAGE, syntax="proto3", dependency=[wrappers.name]
    )
    for name, fields in _MESSAGES.items():
        file.message_type.add(name=name, field=[_field(*field) for field in fields])
    # A pool of its own: the names must not meet those of the generated modules in a process that has both.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(wrappers)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _build()
PredictRequest = _CLASSES["PredictRequest"]
PredictResponse = _CLASSES["PredictResponse"]
Tensor = _CLASSES["Tensor"]
GetModelStatusRequest = _CLASSES["GetModelStatusRequest"]
GetModelStatusResponse = _CLASSES["GetModelStatusResponse"]
