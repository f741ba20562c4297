"""Refuse misspelt keywords of a model, which transformers' models take and ignore."""

import difflib
import functools
import inspect
from typing import Any, cast

import torch

from hf_capsule_mt.modeling.cache_names import Method

ALIKE = 0.85  # of a misspelt keyword and the one that is meant
# of other models of transformers, and almost one of ours
KNOWN = frozenset({"encoder_attention_mask", "past_key_values"})


def refuses_misspelt(method: Method) -> Method:
    """Let a method with `**kwargs` refuse a keyword that is almost one of its own: `output_routing_wieghts`.

    Others pass, as in all models of transformers: `generate()` and the Trainer give them to whatever model.
    """
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    own = frozenset(names)

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and not own.issuperset(kwargs):
            for keyword in kwargs.keys() - own:
                if keyword not in KNOWN and (meant := difflib.get_close_matches(keyword, names, n=1, cutoff=ALIKE)):
                    raise TypeError(f"{type(self).__name__} has no argument `{keyword}`; did you mean `{meant[0]}`?")
        return method(self, *args, **kwargs)

    return cast(Method, checked)
