"""How many instructions a token takes, beside the tracked table: a change of 3 % fails here."""

import pytest

pytest.importorskip("ziglang", reason="ziglang compiles the engine")

from tests.light.engine.instructions import CELLS, build_program, instructions_per_token, missing, read_table

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build_program(tmp_path_factory.mktemp("engine"))


@pytest.mark.parametrize("title", CELLS)
def test_a_token_takes_as_many_instructions_as_in_the_table(title, program, tmp_path):
    """After an intended change, `python -m tests.light.engine.instructions` writes the table anew."""
    counted = instructions_per_token(CELLS[title], program, tmp_path)
    assert counted == pytest.approx(read_table()["instructions_per_token"][title], rel=0.03)
