"""A worker process: messages come on standard input, events go to standard output, both pickled.

Before each message stand its bytes, as 8 bytes, so that they can be read while this process still imports.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from queue import SimpleQueue
from threading import Thread
from typing import Any

from deepthink_cli.io.temporary import remove_temporary_folders

LENGTH = 8  # bytes of the length of a message, the highest first
END = bytes(LENGTH)  # in place of a message: end at once


def main() -> None:
    """Do what the parent process asks for until it ends or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be between the events
    messages: SimpleQueue[bytes] = SimpleQueue()
    # From the start, so that this process ends with its parent. The imports of two threads could meet halfway: messages
    # are unpickled by this one.
    Thread(target=_read, args=(sys.stdin.buffer, messages), daemon=True).start()
    from deepthink_cli.experiments.executors.handler import MessageHandler
    from deepthink_cli.io.cache import Store

    handler = MessageHandler(Store())
    while True:
        for event in handler.handle(pickle.loads(messages.get())):
            pickle.dump(event, events)
            events.flush()


def _read(pipe: Any, messages: SimpleQueue[bytes]) -> None:
    """Queue the messages; when the parent says so or has ended, in whatever way, end this process too."""
    while len(length := pipe.read(LENGTH)) == LENGTH and length != END:
        messages.put(pipe.read(int.from_bytes(length, "big")))
    remove_temporary_folders()
    os._exit(0)


if __name__ == "__main__":
    main()
