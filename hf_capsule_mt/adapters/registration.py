"""Make "CAPSULE" one of PEFT's methods.

`register_peft_method` takes only names that the enumeration `PeftType` has, and that is closed: a method from outside
must add its member first.
"""

from typing import Any

from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.utils import register_peft_method
from peft.utils.peft_types import PeftType

NAME = "CAPSULE"
# what PEFT and transformers look for in the names of an adapter's weights
PREFIX = "capsule_"


def capsule_peft_type() -> Any:
    """Return the member of `PeftType` for our method, which is made the first time."""
    if NAME not in PeftType.__members__:
        member = str.__new__(PeftType, NAME)
        member._name_, member._value_ = NAME, NAME
        PeftType._member_map_[NAME] = PeftType._value2member_map_[NAME] = member
        PeftType._member_names_.append(NAME)
        type.__setattr__(PeftType, NAME, member)
    return PeftType[NAME]


def register(config_class: type, tuner_class: type) -> None:
    """Tell PEFT of our classes, once."""
    if capsule_peft_type() not in PEFT_TYPE_TO_CONFIG_MAPPING:
        register_peft_method(
            name=NAME.lower(),
            config_cls=config_class,
            model_cls=tuner_class,
            prefix=PREFIX,
        )
