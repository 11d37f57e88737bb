"""The socket of a server, listened on before the model is loaded: an address in use is told at once."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.serve.options import ServeOptions


@contextmanager
def listening(options: ServeOptions) -> Iterator[socket.socket]:
    """A socket that listens at the place that the options name; the file of a Unix socket is removed in the end.

    Raises InputError for a place that is in use or cannot be listened on.
    """
    if options.socket is not None:
        with _unix_socket(options.socket) as listener:
            yield listener
        return
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError.of("host", options.host, f"no address ({error.strerror}); use 127.0.0.1") from error
    with socket.socket(family, kind, number) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # with SO_REUSEADDR two processes can bind one port, but not listen on it
        except OSError as error:
            reason = f"not on {options.host} ({os.strerror(error.errno or 0)}); name another port, or 0 for a free one"
            raise InputError.of("port", options.port, reason) from error
        yield listener


def address_of(listener: socket.socket) -> str:
    """The address of a socket as clients write it: `http://127.0.0.1:8000` or `unix:/path`."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


@contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            with _alone_in(path.parent):
                _remove_abandoned(path)
                before = os.umask(0o177)  # the file is the user's alone from the start
                try:
                    listener.bind(str(path))
                finally:
                    os.umask(before)
                listener.listen()
                made = _identity(path)
        except OSError as error:
            raise InputError.of("socket", path, f"cannot be made ({error}); name another path") from error
        try:
            yield listener
        finally:
            with suppress(FileNotFoundError), _alone_in(path.parent):
                if _identity(path) == made:
                    path.unlink()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Inside the block no other server makes or removes a socket in the folder, so that each that is seen listens."""
    import fcntl  # only where there are Unix sockets

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _identity(path: Path) -> tuple[int, int, int]:
    """The identity of a file; a later file may have the same inode, but has another time."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_abandoned(path: Path) -> None:
    """Remove a socket that no process listens on; raises InputError for one in use, and for another file."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError.of("socket", path, "is a file and no socket; name another path")
        with socket.socket(socket.AF_UNIX) as probe, suppress(BlockingIOError):  # its queue of connections is full
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
        raise InputError.of("socket", path, "another process listens on it; name another path")
