"""``graphbreak checkpoint`` repairs names, keeps everything else, and runs nothing that is in the file."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak import repair_checkpoint
from jupyter_graphbreak.api.checkpoints import NotACheckpointError
from tests.cli.conftest import Cli


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        self.head = torch.nn.Linear(2, 2, bias=False, dtype=torch.bfloat16)
        self.tied = self.head.weight


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    net = Net()
    net.body = torch.compile(net.body)  # type: ignore[assignment]
    named = torch.optim.AdamW(net.named_parameters())
    loss = net.body(torch.ones(3, 2)).sum() + net.head(torch.ones(2, dtype=torch.bfloat16)).sum()
    loss.backward()
    named.step()
    state: dict[str, Any] = {
        "model": torch.compile(net).state_dict(),  # type: ignore[attr-defined]
        "optimizer": named.state_dict(),
        "by_name": {
            "state": {"body._orig_mod.0.weight": {"step": 3}},
            "param_groups": [{"params": ["_orig_mod.tied"]}],
        },
        "epochs": [1, 2],
        "_orig_modern": "stays",
        "note": "a _orig_mod. in a text stays",
    }
    torch.save(state, tmp_path / "saved.pt")
    return tmp_path / "saved.pt"


def test_names_are_repaired_and_everything_else_stays(saved: Path, cli: Cli) -> None:
    new = saved.with_name("new.pt")
    result = cli("checkpoint", str(saved), "-o", str(new))
    assert (result.returncode, result.stderr) == (0, "")
    assert "_orig_mod.body._orig_mod.0.weight -> body.0.weight\n" in result.stdout
    assert result.stdout.endswith(f"names; wrote {new}.\n")
    before, after = torch.load(saved), torch.load(new)
    net = Net()
    assert list(after["model"]) == list(net.state_dict())
    net.load_state_dict(after["model"])
    assert after["model"]._metadata.keys() == net.state_dict()._metadata.keys()  # type: ignore[attr-defined]
    assert after["model"]._metadata["body.1"] == {"version": 2}
    assert all(map(torch.equal, before["model"].values(), after["model"].values()))
    assert after["model"]["head.weight"].dtype is torch.bfloat16
    assert after["model"]["head.weight"].data_ptr() == after["model"]["tied"].data_ptr()
    assert after["by_name"] == {"state": {"body.0.weight": {"step": 3}}, "param_groups": [{"params": ["tied"]}]}
    assert not any("_orig_mod" in name for name in after["optimizer"]["param_groups"][0]["param_names"])
    assert list(after) == list(before)
    assert (after["note"], after["_orig_modern"]) == (before["note"], "stays")
    assert new.stat().st_mode == saved.stat().st_mode
    assert sorted(path.name for path in saved.parent.iterdir()) == ["new.pt", "saved.pt"]


def test_nothing_is_overwritten(saved: Path, cli: Cli) -> None:
    content = saved.read_bytes()
    result = cli("checkpoint", str(saved), "-o", str(saved))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"graphbreak: {saved} exists; choose a different name\n"
    assert saved.read_bytes() == content
    new, newer = saved.with_name("new.pt"), saved.with_name("newer.pt")
    assert cli("checkpoint", str(saved), "-o", str(new)).returncode == 0
    again = cli("checkpoint", str(new), "-o", str(newer))
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"No name in {new} contains _orig_mod. {newer} was not written.\n"
    missing = cli("checkpoint", "nowhere.pt", "-o", "newer.pt")
    assert (missing.returncode, missing.stderr) == (3, "graphbreak: nowhere.pt: no such file or directory\n")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("graphbreak-was-here",)


def refusal(path: Path) -> str:
    before = sorted(path.parent.iterdir())
    with pytest.raises(NotACheckpointError) as caught:
        repair_checkpoint(path, path.with_name("new.pt"))
    assert sorted(path.parent.iterdir()) == before
    return str(caught.value)


def test_hostile_files_are_refused(tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.pt"
    torch.save({"_orig_mod.x": Harmful()}, path)
    assert "cannot be loaded with weights_only=True" in refusal(path)
    torch.save({"_orig_mod.x": 1}, path, _use_new_zipfile_serialization=False)
    assert refusal(path) == f"{path} is not a file written by torch.save"
    path.write_bytes(saved.read_bytes()[:-100])
    assert refusal(path) == f"{path} is not a file written by torch.save"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 1000)
    assert "it is compressed or has too many parts" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/other", b"")
    assert "it describes no objects" in refusal(path)
    torch.save({"_orig_mod.x": 1, "x": 2}, path)
    assert refusal(path) == "two entries would be named 'x'; rename one of them first"
    with pytest.raises(IsADirectoryError):
        repair_checkpoint(tmp_path, tmp_path / "new.pt")


def test_a_file_of_safetensors_is_repaired(tmp_path: Path) -> None:
    def write(header: bytes, data: bytes) -> Path:
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + data)
        return path

    part = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = {"__metadata__": {"format": "pt"}, "_orig_mod.weight": part, "inner._orig_mod.weight": part}
    path, new = write(json.dumps(header).encode(), b"\0\0\x80\x3f"), tmp_path / "new.safetensors"
    assert repair_checkpoint(path, new).renamed == {
        "_orig_mod.weight": "weight",
        "inner._orig_mod.weight": "inner.weight",
    }
    content = new.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "weight": part,
        "inner.weight": part,
    }
    assert content[8 + length :] == b"\0\0\x80\x3f"
    for damaged in (b"{", b"[]", b"[" * 100_000):
        assert "its header is damaged" in refusal(write(damaged, b""))
    path.write_bytes(struct.pack("<Q", 1 << 60))
    assert "its header is damaged" in refusal(path)
