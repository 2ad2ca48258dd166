"""Compiles a function for a real TPU topology on a machine without one: does it fit, and what does it compute?

Reads a tf.function that XLA can compile; gives memory and FLOPs of its program. TensorFlow turns the function into
XLA's language, and the compiler in the `libtpu` package, reached through JAX, turns that into a TPU program that is
never run. Needs the extra `tpu-check` (jax, libtpu).
"""

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gnmt_tf.config import UserError

GIB = 2.0**30


class TpuProgram(NamedTuple):
    """A compiled program for one core.

    Fields:
      topology: that it was compiled for, such as `v5e:2x2`.
      argument_bytes, output_bytes: of weights, optimizer and batch, and of what the step returns.
      temporary_bytes: high-bandwidth memory that the program uses beside them.
      flops: floating-point operations of one run; XLA counts the body of a loop once, so it is a lower bound.
      compile_seconds: wall time of the TPU compiler.
    """

    topology: str
    argument_bytes: int
    output_bytes: int
    temporary_bytes: int
    flops: float
    compile_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.topology}: arguments {self.argument_bytes / GIB:.3f} GiB, temporaries "
            f"{self.temporary_bytes / GIB:.3f} GiB, outputs {self.output_bytes / GIB:.3f} GiB, at least "
            f"{self.flops / 1e9:.1f} GFLOP a step, compiled in {self.compile_seconds:.1f} s"
        )


def compile_for_tpu(function: Any, arguments: Sequence[Any], topology: str = "v5e:2x2") -> TpuProgram:
    """Compiles a function for one core of a topology.

    Args:
      function: a `tf.function` with `jit_compile=True`; variables that it reads or assigns become arguments.
      arguments: tensors to trace it with, of static shapes.
      topology: as JAX names them: generation, colon, chips in each direction.

    Raises:
      UserError: the extra `tpu-check` is not installed, or the topology is unknown.
    """
    client, devices = _compile_only_client(topology)
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jaxlib.mlir import ir

    hlo = function.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized", platform_name="CPU")
    text = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(hlo))
    # TensorFlow marks values that are returned twice, as a variable and as a result, with an operation that StableHLO
    # lacks; a barrier keeps them apart as well.
    text = text.replace("mhlo.copy", "stablehlo.optimization_barrier")
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
    options = xla_client.CompileOptions()
    start = time.perf_counter()
    executable = client.compile(module, _jax.DeviceList(tuple(devices[:1])), options)
    seconds = time.perf_counter() - start
    memory = executable.get_compiled_memory_stats()
    return TpuProgram(
        topology,
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        float(executable.cost_analysis()["flops"]),
        seconds,
    )


def _compile_only_client(topology: str) -> tuple[Any, Sequence[Any]]:
    # Without these the TPU library looks for a TPU and for the cloud machine that has it.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        from jax.experimental import topologies
    except ImportError as error:
        raise UserError(
            "the extra tpu-check", "jax and libtpu", str(error), "Install with `pip install 'gnmt_tf[tpu-check]'`."
        ) from None
    try:
        description: Any = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except Exception as error:
        raise UserError(
            f"topology {topology}",
            "one that libtpu knows, such as v5e:2x2",
            str(error).splitlines()[0],
            "Name another.",
        ) from None
    return description.devices[0].client, description.devices


def train_step_function(model: Any) -> Any:
    """The training step of a compiled model as one XLA program, for `compile_for_tpu`."""
    return tf.function(model.train_step, jit_compile=True, autograph=False)
