"""What a process of a test does with a model; the process has no third-party packages."""

import os
import signal

from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.models.model_sandbox import error_report


def crash(job, contents, limits):
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(job, contents, limits):
    try:
        return {}[job["name"]], []
    except LookupError as error:
        return error_report(error, job["name"])


def lack_engine(job, contents, limits):
    return error_report(NativeUnavailableError("there is no engine for this machine"), job["name"])


def lack_library(job, contents, limits):
    return error_report(ModuleNotFoundError("No module named 'tokenizers'"), job["name"])
