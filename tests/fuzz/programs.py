"""Hostile programs, as a .capsule file may carry: sound ones with other slots, buffers, tables and caches."""

import copy
import random
from typing import Any

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import Operation, Program
from capsule_mt.engine.search import Readings, SearchOptions
from tests.light.engine.programs import END, PAD, PROGRAMS, SMALL_SET, SOURCES, TARGETS
from tests.light.engine.test_encoding import LAYERS, encoder_program

Case = dict[str, Any]
SOUND = {name: PROGRAMS[name] for name in SMALL_SET} | {"encoder": encoder_program(LAYERS)}
NUMBERS = (0, 1, 2, 3, 4, 7, 20, 60, 61, 62, 255, 4096, -1, -2, 2**31 - 1, -(2**31))


class HostileProgram(Program):
    """A program whose tables state widths of their own."""

    widths: dict[int, int]

    @property
    def table_widths(self) -> dict[int, int]:
        return super().table_widths | self.widths


def make_program(generator: random.Random) -> Case:
    case: Case = {"program": generator.choice([*SOUND]), "int8": generator.random() < 0.5, "changes": []}
    program = SOUND[case["program"]]
    sides = [side for side in ("encoder", "decoder") if getattr(program, side)]
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        side = generator.choice(sides)
        operations = getattr(program, side)
        index = generator.randrange(len(operations))
        slot = generator.randrange(len(operations[index].slots))
        # another buffer of the program is worth more than a number that no program has
        number = generator.choice((*NUMBERS, *(generator.randrange(len(program.buffers)) for _ in NUMBERS)))
        buffer = generator.randrange(len(program.buffers))
        case["changes"].append(
            generator.choice(
                (
                    *(["slot", side, index, slot, number],) * 5,
                    ["space", buffer, generator.choice((0, 1, 2, 3, 4, -1, 99))],
                    ["width", buffer, generator.choice((*NUMBERS, 2**40, 2**62))],
                    ["buffer", generator.choice((0, 1, 2, 3)), generator.choice((1, 60, 4096))],
                    ["repeat", side, index, generator.randrange(len(operations) + 1)],
                    ["drop", side, index],
                    ["table", generator.choice(sorted(program.table_widths)), generator.choice((1, 2, 5, 10, 40))],
                    ["caches", generator.choice((0, 1, 2**10, 2**40))],
                    ["logits", buffer],
                )
            )
        )
    return case


def changed_program(case: Case) -> Program:
    program = copy.copy(SOUND[case["program"]])
    program.__class__, program.widths = HostileProgram, {}  # type: ignore[attr-defined]
    for name in ("buffers", "encoder", "decoder"):
        setattr(program, name, list(getattr(program, name)))
    for kind, *values in case["changes"]:
        if kind == "slot":
            side, index, slot, number = values
            operations = getattr(program, side)
            slots = list(operations[index].slots)
            slots[slot] = number
            operations[index] = Operation(operations[index].kind, tuple(slots))
        elif kind == "space":
            program.buffers[values[0]] = (values[1], program.buffers[values[0]][1])
        elif kind == "width":
            program.buffers[values[0]] = (program.buffers[values[0]][0], values[1])
        elif kind == "buffer":
            program.buffers.append((values[0], values[1]))
        elif kind == "repeat":
            getattr(program, values[0]).insert(values[2], getattr(program, values[0])[values[1]])
        elif kind == "drop":
            getattr(program, values[0]).pop(values[1])
        elif kind == "table":
            program.widths[values[0]] = values[1]  # type: ignore[attr-defined]
        elif kind == "caches":
            program.num_caches = values[0]
        else:
            program.logits = values[0]
    return program


def check_program(case: Case) -> None:
    """Check that a program is refused, or runs inside its memory; only a sanitizer sees whether it does."""
    try:
        program = changed_program(case)
    except (IndexError, TypeError):
        return  # an earlier change took away what this one changes
    try:
        engine = Engine(program, int8=case["int8"], num_threads=1)
        if not program.decoder:
            engine.encode(SOURCES)
        decoder = EngineDecoder(engine, PAD, END, PAD)
        for head in (None, (0, 1)):
            decoder.force(SOURCES, TARGETS, Readings(head=head))
            options = SearchOptions(limits=[6] * len(SOURCES), num_beams=3, readings=Readings(head=head))
            decoder.translate(SOURCES, options)
    except (ValueError, MemoryError, IndexError):  # an index that Python has looked up before the engine does
        return
