"""The headers and the framework library of a TensorFlow that pip has installed, as `@tensorflow//:framework`."""

_BUILD = """
cc_library(
    name = "framework",
    hdrs = glob(["include/**"]),
    srcs = ["{library}"],
    copts = [],
    defines = {defines},
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

_PROGRAM = """
import os, tensorflow as tf
print(tf.sysconfig.get_include())
print(os.path.join(tf.sysconfig.get_lib(), [f[3:] for f in tf.sysconfig.get_link_flags() if f.startswith("-l:")][0]))
print(" ".join(f[2:] for f in tf.sysconfig.get_compile_flags() if f.startswith("-D")))
"""

def _python(context):
    given = context.os.environ.get("GNMT_PYTHON")
    if given:
        return given
    in_venv = str(context.path(Label("//:WORKSPACE")).dirname) + "/.venv/bin/python"
    return in_venv if context.path(in_venv).exists else context.which("python3")

def _installed_tensorflow(context):
    python = _python(context)
    found = context.execute([python, "-c", _PROGRAM], environment = {"TF_CPP_MIN_LOG_LEVEL": "3"})
    if found.return_code:
        fail("%s cannot import tensorflow; run `make install`, or set GNMT_PYTHON to a Python that can:\n%s" % (
            python,
            found.stderr,
        ))
    include, library, defines = found.stdout.split("\n")[-4:-1]
    context.symlink(include, "include")
    context.symlink(library, library.split("/")[-1])
    context.file("BUILD", _BUILD.format(defines = repr(defines.split(" ")), library = library.split("/")[-1]))

installed_tensorflow = repository_rule(
    implementation = _installed_tensorflow,
    doc = "Finds TensorFlow through $GNMT_PYTHON, else through .venv, else through python3.",
    environ = ["GNMT_PYTHON"],
    local = True,
)
