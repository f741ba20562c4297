"""Both names of the decoding cache: `cache` from transformers 5.24 on, `past_key_values` before.

Every `forward` here has an argument `cache`. Each function of this module makes one place of a model take the other
name, too: arguments, outputs, and what the installed transformers passes around.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from transformers.modeling_outputs import Seq2SeqLMOutput

Forward = TypeVar("Forward", bound=Callable[..., Any])
Output = TypeVar("Output", bound=type)

NEW_NAME, OLD_NAME = "cache", "past_key_values"
# what the installed transformers calls the cache of its models, in arguments and in outputs
CACHE_NAME, OTHER_NAME = (
    (NEW_NAME, OLD_NAME) if NEW_NAME in Seq2SeqLMOutput.__dataclass_fields__ else (OLD_NAME, NEW_NAME)
)


def rename_cache(kwargs: dict[str, Any], name: str = CACHE_NAME) -> None:
    """Put a cache that is given by either name under `name`, in place."""
    other = OLD_NAME if name == NEW_NAME else NEW_NAME
    given = kwargs.pop(other, None)
    if given is None:
        return
    if kwargs.get(name) is not None:
        raise ValueError(f"give `{NEW_NAME}` or `{OLD_NAME}`, which are two names of one argument, not both")
    kwargs[name] = given


def takes_both_cache_names(forward: Forward) -> Forward:
    """Let a `forward` with an argument `cache` take it as `past_key_values`, too."""

    @functools.wraps(forward)
    def renaming(self: Any, *args: Any, **kwargs: Any) -> Any:
        rename_cache(kwargs, NEW_NAME)
        return forward(self, *args, **kwargs)

    return cast(Forward, renaming)


def gives_both_cache_names(output_class: Output) -> Output:
    """Give instances of an output class their cache by its other name, too."""
    setattr(output_class, OTHER_NAME, property(lambda output: getattr(output, CACHE_NAME)))
    return output_class


def cache_field(cache: Any) -> dict[str, Any]:
    """Return the keyword argument that puts a cache into an output, or gives it to any model of transformers."""
    return {CACHE_NAME: cache}
