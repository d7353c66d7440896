"""``graphbreak checkpoint`` repairs names, changes nothing else, and runs no code from the checkpoint."""

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
def checkpoint(tmp_path: Path) -> Path:
    net = Net()
    net.body = torch.compile(net.body)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(net.named_parameters())
    loss = net.body(torch.ones(3, 2)).sum() + net.head(torch.ones(2, dtype=torch.bfloat16)).sum()
    loss.backward()
    optimizer.step()
    state: dict[str, Any] = {
        "model": torch.compile(net).state_dict(),  # type: ignore[attr-defined]
        "optimizer": optimizer.state_dict(),
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


def test_names_are_repaired_and_everything_else_is_kept(checkpoint: Path, cli: Cli) -> None:
    new_path = checkpoint.with_name("new.pt")
    result = cli("checkpoint", str(checkpoint), "-o", str(new_path))
    assert (result.returncode, result.stderr) == (0, "")
    assert "_orig_mod.body._orig_mod.0.weight -> body.0.weight\n" in result.stdout
    assert result.stdout.endswith(f"names; wrote {new_path}.\n")
    old_state, new_state = torch.load(checkpoint), torch.load(new_path)
    net = Net()
    assert list(new_state["model"]) == list(net.state_dict())
    net.load_state_dict(new_state["model"])
    assert new_state["model"]._metadata.keys() == net.state_dict()._metadata.keys()  # type: ignore[attr-defined]
    assert new_state["model"]._metadata["body.1"] == {"version": 2}
    assert all(map(torch.equal, old_state["model"].values(), new_state["model"].values()))
    assert new_state["model"]["head.weight"].dtype is torch.bfloat16
    assert new_state["model"]["head.weight"].data_ptr() == new_state["model"]["tied"].data_ptr()
    assert new_state["by_name"] == {"state": {"body.0.weight": {"step": 3}}, "param_groups": [{"params": ["tied"]}]}
    assert not any("_orig_mod" in name for name in new_state["optimizer"]["param_groups"][0]["param_names"])
    assert list(new_state) == list(old_state)
    assert (new_state["note"], new_state["_orig_modern"]) == (old_state["note"], "stays")
    assert new_path.stat().st_mode == checkpoint.stat().st_mode
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == ["new.pt", "saved.pt"]


def test_nothing_is_written_over_a_file_or_if_no_name_needs_repair(checkpoint: Path, cli: Cli) -> None:
    content = checkpoint.read_bytes()
    result = cli("checkpoint", str(checkpoint), "-o", str(checkpoint))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"graphbreak: {checkpoint} exists; choose a different name\n"
    assert checkpoint.read_bytes() == content
    new_path, newer_path = checkpoint.with_name("new.pt"), checkpoint.with_name("newer.pt")
    assert cli("checkpoint", str(checkpoint), "-o", str(new_path)).returncode == 0
    second_run = cli("checkpoint", str(new_path), "-o", str(newer_path))
    assert (second_run.returncode, second_run.stdout) == (1, "")
    assert second_run.stderr == f"No name in {new_path} contains _orig_mod. {newer_path} was not written.\n"
    result_without_file = cli("checkpoint", "nowhere.pt", "-o", "newer.pt")
    assert (result_without_file.returncode, result_without_file.stderr) == (
        3,
        "graphbreak: nowhere.pt: no such file or directory\n",
    )


class HarmfulObject:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("graphbreak-was-here",)


def error_of_repair(path: Path) -> str:
    paths_before = sorted(path.parent.iterdir())
    with pytest.raises(NotACheckpointError) as caught:
        repair_checkpoint(path, path.with_name("new.pt"))
    assert sorted(path.parent.iterdir()) == paths_before
    return str(caught.value)


def test_hostile_files_are_refused(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.pt"
    torch.save({"_orig_mod.x": HarmfulObject()}, path)
    assert "cannot be loaded with weights_only=True" in error_of_repair(path)
    torch.save({"_orig_mod.x": 1}, path, _use_new_zipfile_serialization=False)
    assert error_of_repair(path) == f"{path} is not a file written by torch.save"
    path.write_bytes(checkpoint.read_bytes()[:-100])
    assert error_of_repair(path) == f"{path} is not a file written by torch.save"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 1000)
    assert "it is compressed or has too many parts" in error_of_repair(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/other", b"")
    assert "it describes no objects" in error_of_repair(path)
    torch.save({"_orig_mod.x": 1, "x": 2}, path)
    assert error_of_repair(path) == "two entries would be named 'x'; rename one of them first"
    with pytest.raises(IsADirectoryError):
        repair_checkpoint(tmp_path, tmp_path / "new.pt")


def test_a_safetensors_file_is_repaired(tmp_path: Path) -> None:
    def write_safetensors(header: bytes, data: bytes) -> Path:
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + data)
        return path

    tensor_entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = {
        "__metadata__": {"format": "pt"},
        "_orig_mod.weight": tensor_entry,
        "inner._orig_mod.weight": tensor_entry,
    }
    path, new_path = write_safetensors(json.dumps(header).encode(), b"\0\0\x80\x3f"), tmp_path / "new.safetensors"
    assert repair_checkpoint(path, new_path).renamed == {
        "_orig_mod.weight": "weight",
        "inner._orig_mod.weight": "inner.weight",
    }
    content = new_path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "weight": tensor_entry,
        "inner.weight": tensor_entry,
    }
    assert content[8 + length :] == b"\0\0\x80\x3f"
    for damaged_header in (b"{", b"[]", b"[" * 100_000):
        assert "its header is damaged" in error_of_repair(write_safetensors(damaged_header, b""))
    path.write_bytes(struct.pack("<Q", 1 << 60))
    assert "its header is damaged" in error_of_repair(path)
