"""The process that loads a model of a stranger first, and the limits of its time and memory."""

from typing import Any

from capsule_mt.files.sandbox.child import Limits
from capsule_mt.models.encoder_loading import is_encoder, load_encoder
from capsule_mt.models.loading import load_model, open_checkpoint
from capsule_mt.models.model_sandbox import ModelSandbox, error_report

SECONDS, SECONDS_PER_BYTE = 30.0, 30 / (1 << 30)  # of the processor
MEMORY, MEMORY_PER_BYTE = 4 << 30, 4  # bytes of addresses, which count mapped files and threads, too


def answer(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    """Load the model in a folder; without a `shortlist`, with the one beside it, if there is one."""
    folder, shortlist = job["name"], job["shortlist"]
    try:
        if is_encoder(folder):
            load_encoder(folder, int8=job["int8"])
            return {"is_last": True}, []
        shortlist = open_checkpoint(folder).has_shortlist if shortlist is None else shortlist
        load_model(folder, int8=job["int8"], shortlist=shortlist)
        return {"is_last": True}, []
    except MemoryError:
        raise
    except BaseException as error:  # also the panics of `tokenizers`
        return error_report(error, folder)


class ProbeProcess(ModelSandbox):
    """A process that loads a model of `size` bytes, and forgets it."""

    answer, libraries = staticmethod(answer), ("tokenizers",)

    def __init__(self, size: int) -> None:
        super().__init__(round(SECONDS + SECONDS_PER_BYTE * size, 1), MEMORY + MEMORY_PER_BYTE * size)

    def load(self, folder: str, *, int8: bool, shortlist: bool | str | None) -> None:
        """Load the model in a folder there; raise the error that loading raises."""
        self._send(folder, int8=int8, shortlist=shortlist)
