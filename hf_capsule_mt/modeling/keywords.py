"""Keywords of a model beside its arguments; misspelt ones, which transformers' models take and ignore, are refused."""

import difflib
import functools
import inspect
from typing import Any, TypedDict, cast

import torch
from transformers.cache_utils import Cache

from hf_capsule_mt.modeling.cache_names import Method

ALIKE = 0.85  # of a misspelt keyword and the one that is meant


class ForwardKwargs(TypedDict, total=False):
    """Keywords of every `forward` beside its arguments."""

    return_dict: bool | None
    past_key_values: Cache | None


def refuses_misspelt(method: Method) -> Method:
    """Let `forward` refuse a keyword that is almost one of its own.

    Others pass, as in all models of transformers: `generate()` and the Trainer give them to whatever model.
    """
    names = [*inspect.signature(method).parameters, *ForwardKwargs.__annotations__]
    own = {*names, "encoder_attention_mask"}  # which other models have

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            for keyword in kwargs.keys() - own:
                if meant := difflib.get_close_matches(keyword, names, n=1, cutoff=ALIKE):
                    raise TypeError(f"{type(self).__name__} has no argument `{keyword}`; did you mean `{meant[0]}`?")
        return method(self, *args, **kwargs)

    return cast(Method, checked)
