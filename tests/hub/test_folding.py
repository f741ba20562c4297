"""Folding leaves the branches that are taken, in the words of the source."""

from hf_capsule_mt.hub.folding import fold

SOURCE = '''\
def build(self, config, layers):
    """Return what the configuration names."""
    is_guided = config.guided != "none"
    check(layers, is_guided)
    # the parts
    if config.kind == "linear":
        part = Linear(config)  # a map
    elif config.kind == "dense" and layers > 1:
        # many
        part = Dense(config)
    else:
        part = Top()
    if self.losses is None:
        return part
    losses = (
        Losses(config) if config.guided != "none" else None
    )
    return part, losses
'''
DENSE = '''\
def build(self, config, layers):
    """Return what the configuration names."""
    check(layers, True)
    # the parts
    if layers > 1:
        # many
        part = Dense(config)
    else:
        part = Top()
    if self.losses is None:
        return part
    losses = Losses(config)
    return part, losses
'''
LINEAR = '''\
def build(self, config, layers):
    """Return what the configuration names."""
    check(layers, False)
    # the parts
    part = Linear(config)  # a map
    return part
'''
TOP = '''\
def build(self, config, layers):
    """Return what the configuration names."""
    check(layers, False)
    # the parts
    part = Top()
    return part
'''


def test_the_branch_that_is_taken_stays():
    assert fold(SOURCE, {"kind": "dense", "guided": "guided"}, {}) == DENSE
    assert fold(SOURCE, {"kind": "linear", "guided": "none"}, {"self.losses": None}) == LINEAR
    assert fold(SOURCE, {"kind": "none", "guided": "none"}, {"self.losses": None}) == TOP


def test_what_is_not_known_stays():
    assert fold(SOURCE, {"another": True}, {}) == SOURCE
    unknown = "x = config.kind == 'a' if layers else other(config.another)\n"
    assert fold(unknown, {"guided": "none"}, {}) == unknown


def test_nothing_is_an_instance_of_an_absent_class():
    def folded(test):
        return fold(f"x = 1 if {test} else 2\n", {}, {}, frozenset({"A"}))

    assert folded("isinstance(part, A)") == "x = 2\n"
    assert folded("isinstance(part, (A, B))") == "x = 1 if isinstance(part, B) else 2\n"
    for test in ("isinstance(part, (A, nn.Linear))", "isinstance(part, (A, B, nn.Linear))"):
        assert folded(test) == f"x = 1 if {test} else 2\n"


def test_a_part_that_decides_nothing_leaves_a_test():
    settings = {"kind": "none", "guided": "none"}
    assert fold("x = a and config.kind == 'none'\n", settings, {}) == "x = a\n"
    assert fold("x = a and config.kind == 'b'\n", settings, {}) == "x = False\n"
    assert fold("x = a or b or config.kind == 'b'\n", settings, {}) == "x = a or b\n"
    assert fold("x = a or config.kind == 'none'\n", settings, {}) == "x = True\n"
