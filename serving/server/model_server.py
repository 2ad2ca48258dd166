"""The core of the server: which version is live, and what the API answers. No gRPC here.

Reads a model base directory; gives responses of the TF Serving API or raises StatusError. `refresh` is one step of
looking for another version; `polling.py` repeats it.
"""

import gc
import logging
import threading
from typing import NamedTuple

from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
)

from gnmt_tf.serving.server.served_model import ServedModel
from gnmt_tf.serving.server.status import StatusCode, StatusError
from gnmt_tf.serving.server.versions import DirectoryState, directory_state, find_versions

_LOG = logging.getLogger(__name__)
_State = get_model_status_pb2.ModelVersionStatus


class _VersionStatus(NamedTuple):
    state: int
    code: StatusCode = StatusCode.OK
    message: str = ""


class ModelServer:
    """One model under one name, always in its newest version that can be loaded.

    Nothing is loaded until the first `refresh`. Every method may be called from any thread.

    Args:
      base_path: the directory that holds BASE/<version>/saved_model.pb.
      model_name: the name that requests must carry.
    """

    def __init__(self, base_path: str, model_name: str):
        self.base_path, self.model_name = base_path, model_name
        self._live: ServedModel | None = None
        self._statuses: dict[int, _VersionStatus] = {}
        self._broken: dict[int, DirectoryState] = {}
        self._refresh_lock = threading.Lock()

    @property
    def live_version(self) -> int | None:
        """The version that answers requests; None before the first successful `refresh`."""
        return self._live.version if self._live else None

    @property
    def errors(self) -> list[str]:
        """What stood in the way of each version that could not be loaded, newest first."""
        return [f"version {number}: {status.message}" for number, status in self._newest_first() if status.message]

    def refresh(self) -> bool:
        """Makes the highest version in the directory that can be loaded the live one.

        Requests are answered by the old version until the new one has been loaded and warmed up, and those under way
        finish on the one they began with. A version that fails is logged and tried again once its files change.
        Removing the live version's directory rolls back to the one below, as in TF Serving.

        Returns:
          Whether another version is live now.
        """
        with self._refresh_lock:
            for version, path in sorted(find_versions(self.base_path).items(), reverse=True):
                if version == self.live_version:
                    return False
                if self._try_to_load(version, path):
                    return True
            return False

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Answers Predict.

        Raises:
          StatusError: NOT_FOUND for another model or version, INVALID_ARGUMENT for a request that does not fit.
        """
        return self._model_for(request).predict(request)

    def get_model_metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Answers GetModelMetadata, whose one field is `signature_def`.

        Raises:
          StatusError: NOT_FOUND as for `predict`, INVALID_ARGUMENT for no field or an unknown one.
        """
        _require_model_spec(request)
        if not request.metadata_field:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT, "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise StatusError(StatusCode.INVALID_ARGUMENT, f"Metadata field {field} is not supported")
        model = self._model_for(request)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self.model_name
        response.model_spec.version.value = model.version
        signature_map = get_model_metadata_pb2.SignatureDefMap()
        for name, signature_def in model.signature_defs.items():
            signature_map.signature_def[name].CopyFrom(signature_def)
        response.metadata["signature_def"].Pack(signature_map)
        return response

    def get_model_status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Answers GetModelStatus: every version seen since the start, or the one asked for.

        Raises:
          StatusError: NOT_FOUND for another model or a version that was never seen.
        """
        _require_model_spec(request)
        spec = request.model_spec
        wanted = spec.version.value if spec.HasField("version") else None
        found = self._newest_first() if spec.name == self.model_name else []
        if wanted is not None:
            found = [(number, status) for number, status in found if number == wanted]
        if not found:
            what = "any versions" if wanted is None else f"version {wanted}"
            raise StatusError(StatusCode.NOT_FOUND, f"Could not find {what} of model {spec.name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for number, status in found:
            entry = response.model_version_status.add(version=number, state=status.state)
            entry.status.error_code = int(status.code)
            entry.status.error_message = status.message
        return response

    def _try_to_load(self, version: int, path: str) -> bool:
        state = directory_state(path)
        if self._broken.get(version) == state:
            return False
        self._statuses[version] = _VersionStatus(_State.LOADING)
        try:
            model = ServedModel(path, version)
        except Exception as error:
            # Not only StatusError: no defect of a new version may take down the one that is live.
            status = error if isinstance(error, StatusError) else StatusError(StatusCode.INTERNAL, repr(error))
            self._broken[version] = state
            self._statuses[version] = _VersionStatus(_State.END, status.code, status.message)
            _LOG.error("%s version %d cannot be served: %s", self.model_name, version, status.message)
            return False
        replaced, self._live = self._live, model
        self._broken.pop(version, None)
        self._statuses[version] = _VersionStatus(_State.AVAILABLE)
        if replaced is not None:
            self._statuses[replaced.version] = _VersionStatus(_State.END)
            del replaced
            # A SavedModel in memory is full of reference cycles; its variables are freed by the collector only.
            gc.collect()
        return True

    def _model_for(
        self, request: predict_pb2.PredictRequest | get_model_metadata_pb2.GetModelMetadataRequest
    ) -> ServedModel:
        _require_model_spec(request)
        spec, live = request.model_spec, self._live
        if spec.version_label:
            raise StatusError(StatusCode.INVALID_ARGUMENT, f"Unrecognized servable version label: {spec.version_label}")
        versioned = spec.HasField("version")
        if spec.name == self.model_name and live is None:
            raise StatusError(StatusCode.UNAVAILABLE, f"Model {spec.name} is still being loaded")
        if live is None or spec.name != self.model_name or (versioned and spec.version.value != live.version):
            wanted = f"Specific({spec.name}, {spec.version.value})" if versioned else f"Latest({spec.name})"
            raise StatusError(StatusCode.NOT_FOUND, f"Servable not found for request: {wanted}")
        return live

    def _newest_first(self) -> list[tuple[int, _VersionStatus]]:
        return sorted(self._statuses.copy().items(), reverse=True)


def _require_model_spec(request: object) -> None:
    spec: model_pb2.ModelSpec | None = request.model_spec if request.HasField("model_spec") else None  # type: ignore[attr-defined]
    if spec is None:
        raise StatusError(StatusCode.INVALID_ARGUMENT, "Missing ModelSpec")
