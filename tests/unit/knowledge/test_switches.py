"""The table of switches in libraries, and which switch is chosen for a break."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.knowledge.causes import all_advice
from jupyter_graphbreak.knowledge.switches import (
    SWITCHES,
    CodeLocation,
    KnownSwitch,
    switch_with_code,
    switch_with_title,
    switches_for,
)

EINSUM = CodeLocation("opt_einsum/sharing.py", "currently_sharing", "threading.get_ident()")


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.title)
def test_every_switch_was_measured_and_can_be_undone(switch: KnownSwitch) -> None:
    assert all(measurement.breaks_after < measurement.breaks_before for measurement in switch.measurements)
    assert switch.measurements
    if switch.code is not None:
        compile(switch.code, "switch", "exec")
        assert switch.undo
        assert switch_with_code(switch.code) is switch
    assert switch_with_title(switch.title) is switch
    assert switch.advice in all_advice()


def test_the_switch_of_a_calling_library_applies_to_the_library_it_calls() -> None:
    caller = CodeLocation("tensorly/plugins.py", "cached_einsum", "expression(*args)")
    (switch,) = switches_for(EINSUM, [CodeLocation(None, "forward", "self.net(x)"), caller])
    assert switch.library == "tensorly"
    assert list(switches_for(EINSUM, [CodeLocation(None, "forward", "contract(x)")])) == []


def test_the_users_own_file_has_no_switch() -> None:
    assert list(switches_for(CodeLocation(None, "experts", "for expert in experts"), [])) == []
