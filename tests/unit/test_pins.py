"""Every package that development and continuous integration install is pinned, and every pin but torch's has hashes."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pins_in(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / name).read_text(encoding="utf-8")))


def test_every_pin_except_torch_has_hashes() -> None:
    text = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    expected = pins_in("constraints.txt")
    assert expected.pop("torch")
    assert pins_in("requirements-dev.txt") == expected, "run python benchmarks/hash_pins.py"
    for requirement in re.split(r"\n(?=[a-z])", text)[1:]:
        pin, *hashes = requirement.rstrip("\n").split(" \\\n    ")
        assert PIN.fullmatch(pin), pin
        assert hashes, pin
        for hash_option in hashes:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", hash_option), (pin, hash_option)


def test_every_npm_package_has_a_hash_and_none_names_a_registry() -> None:
    lock = json.loads((ROOT / "labextension" / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name and not package.get("link")}
    assert packages
    for name, package in packages.items():
        assert package.get("inBundle") or package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name


def test_workflows_only_have_read_permission_and_pin_their_actions() -> None:
    workflows = [*(ROOT / ".github" / "workflows").glob("*.yml")]
    assert workflows
    for workflow in workflows:
        text = workflow.read_text(encoding="utf-8")
        assert "\npermissions:\n  contents: read\n" in text
        assert text.count("permissions:") == 1
        for action in re.findall(r"uses: (\S+)", text):
            assert re.search(r"@[0-9a-f]{40}$", action), action
