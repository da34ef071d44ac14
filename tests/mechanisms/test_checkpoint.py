"""A stream's folder: what is written, with which rights, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import threading

import numpy as np
import pytest

from privopt import Refused
from privopt.mechanisms.checkpoint import Checkpoint

NOISE = {"0.0": np.arange(3.0), "0.1": np.ones(3)}


@pytest.fixture
def run(tmp_path):
    """Three committed steps."""
    checkpoint = Checkpoint(tmp_path / "run", "name")
    checkpoint.begin({"a": 0})
    for step in range(1, 4):
        checkpoint.save({"a": step}, {k: step * v for k, v in NOISE.items()}, [f"r{step}"])
    return checkpoint


def test_there_and_back(run):
    loaded, saved = Checkpoint.load(run.folder)
    assert (loaded.step, loaded.nonce) == (3, "name")
    assert saved.model == {"nonce": "name", "step": 3, "a": 3}
    assert saved.records == [["r1"], ["r2"], ["r3"]]
    for name, value in NOISE.items():
        np.testing.assert_array_equal(saved.noise[name], 3 * value)


def test_only_the_owner_reads_the_secret_files(run):
    """Whatever the process's mask; and one noise file is there, that of the last step."""
    names = sorted(os.listdir(run.folder))
    assert names == ["lock", "model", "noise-3", "records"]
    modes = {name: (run.folder / name).stat().st_mode & 0o777 for name in names}
    assert modes["noise-3"] == modes["records"] == 0o600


def test_noise_is_not_in_the_model_file(run):
    text = (run.folder / "model").read_text()
    assert json.loads(text.splitlines()[1]) == {"nonce": "name", "step": 3, "a": 3}


def test_no_run(tmp_path):
    assert Checkpoint.load(tmp_path) is None
    assert Checkpoint.load(tmp_path / "nowhere") is None


def test_a_new_run_needs_an_empty_folder(run):
    with pytest.raises(Refused, match="not empty"):
        Checkpoint(run.folder, "other").begin({})


@pytest.mark.parametrize("locked", [True, False])
def test_two_processes_do_not_take_the_same_step(run, locked, monkeypatch):
    """By the lock and a look at the last step, and where there are no locks by the file's name."""
    other, _ = Checkpoint.load(run.folder)
    if locked:
        run.save({"a": 4}, NOISE, ["r4"])
    else:
        monkeypatch.setattr(Checkpoint, "_still_mine", lambda self: None)
        monkeypatch.setattr("privopt.durable.fcntl", None)
        run.save({"a": 4}, NOISE, ["r4"])
    with pytest.raises(Refused, match="another process"):
        other.save({"a": 4}, NOISE, ["r5"])
    _, saved = Checkpoint.load(run.folder)
    assert saved.records[-1] == ["r4"]


def test_a_save_waits_for_a_load(run):
    """Both hold the folder's lock: what one process cleans up, another has not just written."""
    other, _ = Checkpoint.load(run.folder)
    with other._alone():
        saver = threading.Thread(target=run.save, args=({"a": 4}, NOISE, []))
        saver.start()
        saver.join(0.2)
        assert saver.is_alive()
        assert not (run.folder / "noise-4").exists()
    saver.join(10)
    assert Checkpoint.load(run.folder)[0].step == 4


@pytest.mark.parametrize("name", ["model", "noise-3"])
@pytest.mark.parametrize("damage", ["cut", "empty", "altered", "longer"])
def test_a_damaged_file_is_refused(run, name, damage):
    path = run.folder / name
    content = path.read_bytes()
    changed = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "altered": content[:-2] + bytes([content[-2] ^ 1]) + content[-1:],
        "longer": content + b"x",
    }
    path.write_bytes(changed[damage])
    with pytest.raises(Refused, match="truncated or was altered") as caught:
        Checkpoint.load(run.folder)
    assert str(caught.value).endswith(".")


def test_noise_of_another_run_is_refused(run, tmp_path):
    other = Checkpoint(tmp_path / "other", "another name")
    other.begin({})
    for _ in range(3):
        other.save({}, NOISE, [])
    shutil.copy(other.folder / "noise-3", run.folder / "noise-3")
    with pytest.raises(Refused, match="another run"):
        Checkpoint.load(run.folder)


def test_noise_of_another_step_is_refused(run):
    kept = (run.folder / "noise-3").read_bytes()
    run.save({"a": 4}, NOISE, [])
    (run.folder / "noise-4").write_bytes(kept)
    with pytest.raises(Refused, match="another step"):
        Checkpoint.load(run.folder)


def test_an_older_model_is_refused(run):
    """Restored from a backup: steps after it were released."""
    kept = (run.folder / "model").read_bytes()
    run.save({"a": 4}, NOISE, [])
    run.save({"a": 5}, NOISE, [])
    (run.folder / "model").write_bytes(kept)
    with pytest.raises(Refused, match="newer than the model"):
        Checkpoint.load(run.folder)
    assert run.newest_noise() == 5


def test_older_noise_is_refused(run):
    kept = (run.folder / "noise-3").read_bytes()
    run.save({"a": 4}, NOISE, [])
    (run.folder / "noise-4").unlink()
    (run.folder / "noise-3").write_bytes(kept)
    with pytest.raises(Refused, match="older than the model"):
        Checkpoint.load(run.folder)


def test_missing_files_are_refused(run):
    (run.folder / "noise-3").unlink()
    with pytest.raises(Refused, match="missing, or older"):
        Checkpoint.load(run.folder)
    run.renew(3, "new", {"a": 3})
    (run.folder / "model").unlink()
    with pytest.raises(Refused, match="noise without its model"):
        Checkpoint.load(run.folder)


def test_what_an_uncommitted_step_left_is_dropped(run):
    """Noise of a next step, drafts, and a torn line of records: as a crash leaves them."""
    (run.folder / "noise-4").write_bytes(b"half")
    (run.folder / "noise-4.77.draft").write_bytes(b"half")
    (run.folder / "model.77.draft").write_bytes(b"half")
    with (run.folder / "records").open("ab") as file:
        file.write(b'{"step": 4, "records": ["r4"]}\n{"step": 4, "rec')
    loaded, saved = Checkpoint.load(run.folder)
    assert saved.records == [["r1"], ["r2"], ["r3"]]
    assert sorted(os.listdir(run.folder)) == ["lock", "model", "noise-3", "records"]
    loaded.save({"a": 4}, NOISE, ["again"])
    assert Checkpoint.load(run.folder)[1].records[3] == ["again"]
    assert (run.folder / "records").stat().st_mode & 0o777 == 0o600


def test_renewed_noise_begins_empty(run):
    run.renew(3, "new", {"a": 3})
    loaded, saved = Checkpoint.load(run.folder)
    assert saved.noise == {}
    assert (loaded.nonce, saved.model["a"], saved.records[2]) == ("new", 3, ["r3"])


@pytest.mark.parametrize("how", ["save", "renew"])
def test_an_object_that_is_behind_its_folder_commits_nothing(run, how):
    """Not even where nobody else holds the lock: the folder is the authority."""
    behind, _ = Checkpoint.load(run.folder)
    run.save({"a": 4}, NOISE, ["r4"])
    given = ({"a": 5}, NOISE, []) if how == "save" else (4, "other", {"a": 5})
    with pytest.raises(Refused, match="another process has gone on"):
        getattr(behind, how)(*given)
    assert Checkpoint.load(run.folder)[1].model == {"nonce": "name", "step": 4, "a": 4}
