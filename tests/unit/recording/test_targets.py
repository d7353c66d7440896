"""The functions and objects that a function can reach."""

from __future__ import annotations

from jupyter_graphbreak.recording.targets import reachable_objects


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def apply(self, x: int) -> int:
        return x * self.factor


STEPS = {"first": [Scale(2)]}
SAMPLES = [[[Scale(2) for _ in range(50)] for _ in range(100)] for _ in range(10)]


def test_objects_in_containers_are_reached_with_their_methods() -> None:
    def step(x: int) -> int:
        return STEPS["first"][0].apply(x)

    ids = [id(item) for item in reachable_objects(step)]
    assert id(STEPS["first"][0]) in ids
    assert id(Scale.apply) in ids


def test_the_search_of_a_large_data_set_stops_early() -> None:
    def size() -> int:
        return len(SAMPLES)

    scales = [item for item in reachable_objects(size) if isinstance(item, Scale)]
    assert 0 < len(scales) < 11_000
