"""An output is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepthink_cli.atomic import check_output, replacing, writing
from deepthink_cli.errors import DeepThinkError, InputError


def fail_halfway(target: Path, failure: BaseException) -> None:
    with writing(target) as file:
        file.write("half")
        raise failure


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


@pytest.fixture
def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def umask_027() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_the_file_appears_only_when_it_is_whole(target: Path) -> None:
    target.write_text("old")
    with writing(target) as file:
        file.write("new\nü\n")
        file.flush()
        assert target.read_text() == "old"
    assert target.read_bytes() == "new\nü\n".encode()
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_what_was_there_and_nothing_beside_it(target: Path, failure: type[BaseException]) -> None:
    target.write_text("old")
    with pytest.raises(failure):
        fail_halfway(target, failure())
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_no_new_file(target: Path) -> None:
    with pytest.raises(InputError, match=r"^a row is wrong$"):
        fail_halfway(target, InputError("a row is wrong"))
    assert list(target.parent.iterdir()) == []


def test_a_block_that_writes_nothing_replaces_nothing(target: Path) -> None:
    target.write_text("old")
    with pytest.raises(DeepThinkError, match="cannot be written"), replacing(target):
        pass
    assert target.read_text() == "old"


@pytest.mark.parametrize("function", ["replace", "fsync", "chmod"])
def test_a_disk_that_refuses_is_an_error_that_names_the_path(
    target: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target.write_text("old")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(DeepThinkError) as caught, writing(target, "--samples") as file:
        file.write("new")
    assert str(caught.value) == f"--samples {target}: cannot be written: No space left on device"
    assert not isinstance(caught.value, InputError)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("bits", [0o600, 0o644, 0o444])
def test_the_mode_of_a_file_is_kept(target: Path, bits: int) -> None:
    target.write_text("old")
    target.chmod(bits)
    with writing(target) as file:
        file.write("new")
    assert (target.read_text(), mode(target)) == ("new", bits)


@pytest.mark.usefixtures("umask_027")
def test_a_new_file_gets_the_mode_that_the_umask_leaves(target: Path) -> None:
    with writing(target) as file:
        file.write("new")
    assert mode(target) == 0o640


def test_a_symbolic_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    behind, link = tmp_path / "folder" / "file.txt", tmp_path / "link.txt"
    behind.parent.mkdir()
    behind.write_text("old")
    link.symlink_to(behind)
    with writing(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert behind.read_text() == "new"


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"^-o /dev/null: not a regular file; name a new file or an existing one$"):
        check_output("/dev/null")


def test_a_pipe_is_refused(target: Path) -> None:
    os.mkfifo(target)
    with pytest.raises(InputError, match=r": not a regular file; "), writing(target):
        pass
    assert stat.S_ISFIFO(target.stat().st_mode)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_output(tmp_path, "--samples")
    assert str(caught.value) == f"--samples {tmp_path}: not a regular file; name a new file or an existing one"


@pytest.mark.parametrize("folder", ["gone", "out.txt"])
def test_a_missing_directory_is_named(target: Path, folder: str) -> None:
    target.write_text("a file is no directory")
    wanted = target.parent / folder / "memory"
    with pytest.raises(InputError) as caught:
        check_output(wanted)
    assert str(caught.value) == f"-o {wanted}: there is no directory {wanted.parent}; create it first"


def test_a_name_that_leaves_no_room_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": the file name is too long; use at most 200 bytes$"):
        check_output(tmp_path / ("ä" * 101))
    with writing(tmp_path / ("ä" * 100)) as file:
        file.write("fits")


def test_what_dead_processes_left_is_swept(target: Path, dead_process: int) -> None:
    for pid in (dead_process, 10**20):
        (target.parent / f".out.txt.deepthink-{pid}").mkdir()
        (target.parent / f".out.txt.deepthink-{pid}" / "out.txt").write_text("half")
    with writing(target) as file:
        file.write("new")
    assert list(target.parent.iterdir()) == [target]


def test_what_live_processes_and_other_targets_have_is_left(target: Path, dead_process: int) -> None:
    names = {f".out.txt.deepthink-{os.getppid()}", ".out.txt.deepthink-old", f".other.deepthink-{dead_process}"}
    for name in names:
        (target.parent / name).mkdir()
    with writing(target) as file:
        file.write("new")
    assert {path.name for path in target.parent.iterdir()} == names | {"out.txt"}
