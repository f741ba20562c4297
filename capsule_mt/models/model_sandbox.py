"""Read models in the sandbox: the errors that readers raise there are raised here; others are `CheckpointError`s."""

from typing import Any

from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.files.sandbox.child import reported
from capsule_mt.files.sandbox.worker import Sandbox
from capsule_mt.models.opening import CheckpointError

MAX_MESSAGE = 64 << 20  # bytes of JSON
ERRORS = (
    *(CheckpointError, UnsupportedModelError, FileNotFoundError, PermissionError, OSError, ValueError),
    # what the machine lacks, which is not the model's fault
    *(NativeUnavailableError, ImportError, ModuleNotFoundError),
)


class ModelSandbox(Sandbox):
    """A process that reads models."""

    error_type = CheckpointError
    reported_types = {error.__name__: error for error in ERRORS}

    def __init__(self, seconds: float, memory: int) -> None:
        super().__init__(seconds, memory, MAX_MESSAGE, forks=True)


def error_report(error: BaseException, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer of a process that cannot read the model `name`."""
    if type(error) in ERRORS:
        return reported(error)
    # no reader raises it on purpose: a damaged file made it
    reason = " ".join(str(error).split())[:200]
    return reported(CheckpointError(f"{name}: is damaged ({type(error).__name__}: {reason})"))
