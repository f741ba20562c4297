"""Both names of the decoding cache: `cache` from transformers 5.24 on, `past_key_values` before.

Models and decoders have an argument `cache`. Each function of this module makes one place of a model take the other
name, too: arguments, outputs, and what the installed transformers passes around.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from transformers.modeling_outputs import Seq2SeqLMOutput

Method = TypeVar("Method", bound=Callable[..., Any])
Output = TypeVar("Output", bound=type)

NEW_NAME, OLD_NAME = "cache", "past_key_values"
# what the installed transformers calls the cache of its models, in arguments and in outputs
CACHE_NAME = NEW_NAME if NEW_NAME in Seq2SeqLMOutput.__dataclass_fields__ else OLD_NAME
# when transformers' own models will no longer take `past_key_values`
REMOVED_IN = {"forward": "5.40.0", "generate": "6.0.0"}


def rename_cache(kwargs: dict[str, Any], name: str) -> None:
    """Put a cache that is given by either name under `name`, in place."""
    other = OLD_NAME if name == NEW_NAME else NEW_NAME
    cache = kwargs.pop(other, None)
    if cache is None:
        return
    if kwargs.get(name) is not None:
        raise ValueError(f"give `{NEW_NAME}` or `{OLD_NAME}`, which are two names of one argument, not both")
    kwargs[name] = cache


def takes_both_cache_names(method: Method) -> Method:
    """Let `forward` and `generate` take a cache by either name; warn where the installed transformers does.

    Its own `deprecate_kwarg` would ignore one of two caches. `forward` has an argument `cache`; `generate` passes the
    cache on by its present name.
    """
    name = NEW_NAME if NEW_NAME in inspect.signature(method).parameters else CACHE_NAME

    @functools.wraps(method)
    def renaming(self: Any, *args: Any, **kwargs: Any) -> Any:
        if OLD_NAME in kwargs and CACHE_NAME == NEW_NAME and not torch.compiler.is_compiling():
            warnings.warn(
                f"`{OLD_NAME}` is deprecated and will be removed in version {REMOVED_IN[method.__name__]} for "
                f"`{type(self).__name__}.{method.__name__}`. Use `{NEW_NAME}` instead.",
                FutureWarning,
                stacklevel=2,
            )
        rename_cache(kwargs, name)
        return method(self, *args, **kwargs)

    return cast(Method, renaming)


def gives_both_cache_names(output_class: Output) -> Output:
    """Give outputs of a transformers before 5.24 an attribute `cache`; later ones give both names, and warn."""
    if CACHE_NAME == OLD_NAME:
        setattr(output_class, NEW_NAME, property(lambda output: output.past_key_values))
    return output_class


def cache_field(cache: Any) -> dict[str, Any]:
    """Return the keyword argument that puts a cache into an output, or gives it to any model of transformers."""
    return {CACHE_NAME: cache}
