"""An output is whole or not there, whatever happens while it is written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.io.atomic import check_output, making_folder, writing
from deepthink_cli.io.temporary import temporary_folder


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
def leftover(target: Path) -> Path:
    """What a process that was killed while it wrote the target has left."""
    folder = target.parent / f".out.txt.deepthink-{os.getpid():016x}"  # the number of a process that lives says nothing
    folder.mkdir()
    (folder / "out.txt").write_text("half")
    return folder


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


@pytest.mark.parametrize("function", ["mkdir", "fsync", "chmod", "replace"])
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


def test_a_directory_that_cannot_be_brought_to_disk_does_not_make_the_new_file_a_failure(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    with writing(target) as file:
        file.write("new")
    assert target.read_text() == "new"


@pytest.mark.parametrize("bits", [0o000, 0o600, 0o644, 0o444])
def test_the_mode_of_a_file_is_kept(target: Path, bits: int) -> None:
    target.write_text("old")
    target.chmod(bits)
    with writing(target) as file:
        file.write("new")
    assert mode(target) == bits
    target.chmod(0o600)
    assert target.read_text() == "new"


@pytest.mark.usefixtures("umask_027")
def test_a_new_file_gets_the_mode_that_the_umask_leaves(target: Path) -> None:
    with writing(target) as file:
        file.write("new")
    assert mode(target) == 0o640
    assert list(target.parent.iterdir()) == [target]


def test_a_symbolic_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    behind, link = tmp_path / "folder" / "file.txt", tmp_path / "link.txt"
    behind.parent.mkdir()
    behind.write_text("old")
    link.symlink_to(behind)
    with writing(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert behind.read_text() == "new"


def test_another_hard_link_keeps_the_old_file(target: Path) -> None:
    target.write_text("old")
    os.link(target, target.with_name("other.txt"))
    with writing(target) as file:
        file.write("new")
    assert (target.read_text(), target.with_name("other.txt").read_text()) == ("new", "old")


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
    assert str(caught.value) == f"output {wanted}: there is no directory {wanted.parent}; create it first"


def test_a_name_that_leaves_no_room_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r": the file name is too long; use at most 200 bytes$"):
        check_output(tmp_path / ("ä" * 101))
    with writing(tmp_path / ("ä" * 100)) as file:
        file.write("fits")


def test_what_a_dead_process_left_is_swept(target: Path, leftover: Path) -> None:
    with writing(target) as file:
        file.write("new")
    assert list(target.parent.iterdir()) == [target]


def test_folders_with_other_names_are_left(target: Path) -> None:
    names = {
        ".out.txt.deepthink",
        "out.txt.deepthink-1",
        ".out.txt.deepthink-old",
        ".deepthink-data",
        ".b.deepthink-" + "0" * 16,
    }
    for name in names:
        (target.parent / name).mkdir()
    with writing(target) as file:
        file.write("new")
    assert {path.name for path in target.parent.iterdir()} == names | {"out.txt"}


def test_a_link_with_a_temporary_folders_name_is_not_followed(target: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (target.parent / ".out.txt.deepthink-link").symlink_to(elsewhere)
    with writing(target) as file:
        file.write("new")
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_is_written_to_is_not_swept(target: Path) -> None:
    with writing(target) as first:
        with writing(target) as second:
            second.write("second")
        first.write("first")
        assert target.read_text() == "second"
    assert target.read_text() == "first"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("holds", [False, True], ids=["is done", "is at it"])
def test_a_sweep_that_comes_before_the_lock_costs_a_folder_and_no_more(
    holds: bool, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()

    @contextmanager
    def swept(*where: Any) -> Iterator[Path]:
        with temporary_folder(*where) as folder:
            if not made:
                made.append(os.open(folder, os.O_RDONLY))
                fcntl.flock(made[0], fcntl.LOCK_EX) if holds else folder.rmdir()
            yield folder

    monkeypatch.setattr("deepthink_cli.io.atomic.temporary_folder", swept)
    with writing(target) as file:
        file.write("new")
    os.close(made[0])
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_disk_without_locks_is_written_to_and_not_swept(
    target: Path, leftover: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with writing(target) as file:
        file.write("new")
    assert target.read_text() == "new"
    assert set(target.parent.iterdir()) == {target, leftover}


STEPS = ["os.mkdir", "fcntl.flock", "os.fsync", "os.chmod", "os.replace", "shutil.rmtree"]
KILLED = """
import fcntl, os, shutil, signal, sys
from deepthink_cli.io.atomic import writing
module, _, name = sys.argv[2].partition(".")
step = getattr(globals()[module], name)
def last(*given, **named):
    if sys.argv[3] == "after":
        step(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(globals()[module], name, last)
with writing(sys.argv[1]) as file:
    file.write("new")
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_at_any_step_leaves_the_old_file_or_the_new(target: Path, step: str, when: str) -> None:
    target.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(target), step, when])
    assert killed.returncode == -signal.SIGKILL
    replaced = (step, when) in {("os.replace", "after"), ("shutil.rmtree", "before"), ("shutil.rmtree", "after")}
    assert target.read_text() == ("new" if replaced else "old")
    with writing(target) as file:
        file.write("next")
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "adapter"
    with pytest.raises(ZeroDivisionError), making_folder(target):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
    with making_folder(target) as folder:
        (folder / "a").write_text("new")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["a"]
    with pytest.raises(InputError, match="holds files, as a; name a new folder"), making_folder(target):
        pass
