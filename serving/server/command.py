"""Serve an exported model over the gRPC API of TF Serving.

Reads a directory of versions as `gnmt export` writes it, answers Predict, GetModelMetadata, GetModelStatus and
grpc.health.v1, and takes up newer versions as they appear. Ends in good order on SIGTERM or SIGINT.
"""

import logging
import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from gnmt_tf.serving.server.end_signal import EndSignal
from gnmt_tf.tensorflow_start import start_tensorflow

if TYPE_CHECKING:
    from gnmt_tf.serving.server.grpc_server import GrpcServer
    from gnmt_tf.serving.server.model_server import ModelServer

_SERVING_LOGGER = "gnmt_tf.serving"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Adds this command's flags."""
    flags.DEFINE_string(
        "model_base_path", None, "Directory of versions: DIR/<version>/saved_model.pb.", flag_values=flag_values
    )
    flags.DEFINE_string("model_name", "gnmt", "Name that requests must carry.", flag_values=flag_values)
    flags.DEFINE_string(
        "host", "127.0.0.1", "Address to bind; 0.0.0.0 is reachable from outside.", flag_values=flag_values
    )
    flags.DEFINE_integer("port", 8500, "Port to bind; 0 takes any free one.", 0, 65535, flag_values=flag_values)
    flags.DEFINE_integer(
        "threads", 4, "Predictions worked on at the same time; further ones wait.", 1, flag_values=flag_values
    )
    flags.DEFINE_float(
        "poll_seconds", 10.0, "Time between two looks for another version; 0 never looks.", 0.0, flag_values=flag_values
    )
    flags.DEFINE_float(
        "grace_seconds", 10.0, "Time that requests under way get to finish at the end.", 0.0, flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Serves until a signal comes; returns 0 then."""
    from gnmt_tf.config import UserError
    from gnmt_tf.serving.server.address import check_address
    from gnmt_tf.serving.server.versions import check_layout

    base_path = flag_values["model_base_path"].value
    if not base_path:
        raise UserError(
            "--model_base_path", "a directory that `gnmt export` wrote", "nothing", "Add --model_base_path DIR."
        )
    check_layout(base_path)
    check_address(flag_values["host"].value, flag_values["port"].value)
    _log_to_stderr()
    end_signal = EndSignal()
    try:
        start_tensorflow()
        from gnmt_tf.serving.server.grpc_server import GrpcServer
        from gnmt_tf.serving.server.model_server import ModelServer
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("grpc", "grpc_health", "tensorflow_serving"):
            raise
        raise UserError(
            "gnmt serve", "the packages of the extra `serve`", str(error), "Run `pip install 'gnmt_tf[serve]'`."
        ) from None
    model_server = ModelServer(base_path, flag_values["model_name"].value)
    server = GrpcServer(
        model_server, flag_values["host"].value, flag_values["port"].value, flag_values["threads"].value
    )
    return _serve(
        model_server, server, flag_values["poll_seconds"].value, flag_values["grace_seconds"].value, end_signal
    )


def _serve(
    model_server: "ModelServer",
    server: "GrpcServer",
    poll_seconds: float,
    grace_seconds: float,
    end_signal: EndSignal,
) -> int:
    from gnmt_tf.config import UserError
    from gnmt_tf.serving.server.polling import VersionPoller

    # It answers before the model is there, so that a health check finds NOT_SERVING and not a closed door.
    server.start()
    poller = VersionPoller(model_server, poll_seconds)
    finished = True
    try:
        model_server.refresh()
        if model_server.live_version is None:
            raise UserError(
                f"--model_base_path {model_server.base_path}",
                "a version that can be loaded",
                "; ".join(model_server.errors) or "none",
                "Run `gnmt export` again.",
            )
        server.welcome()
        poller.start()
        end_signal.arm()
        print(
            f"Serving {model_server.model_name} version {model_server.live_version} on {server.address}",
            file=sys.stderr,
            flush=True,
        )
        end_signal.wait()
    finally:
        finished = server.stop(grace_seconds if end_signal.received else 0.0)
        finished = poller.stop(timeout_seconds=1.0) and finished
    if not finished:
        # A prediction or a load that cannot be interrupted would keep the interpreter from ending.
        logging.getLogger(_SERVING_LOGGER).warning("ended with work unfinished after %g s of grace", grace_seconds)
        os._exit(0)
    return 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger(_SERVING_LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
