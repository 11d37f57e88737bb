"""A worker process: messages come on standard input, events go to standard output, both pickled."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepthink_cli.runs.executors.messages import Message


def main() -> None:
    """Do what the parent process asks for until it ends or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not be between the events
    from deepthink_cli.pools.store import Store
    from deepthink_cli.runs.executors.workbench import Workbench

    messages: SimpleQueue[Message] = SimpleQueue()
    # After the imports: reading a message imports modules too, and two threads must not import each other's halves.
    Thread(target=_read, args=(sys.stdin.buffer, messages), daemon=True).start()
    workbench = Workbench(Store(Path(sys.argv[1])))
    while True:
        for event in workbench.handle(messages.get()):
            pickle.dump(event, events)
            events.flush()


def _read(pipe: Any, messages: SimpleQueue[Message]) -> None:
    """Queue the messages; when the parent has ended, in whatever way, end this process too."""
    try:
        while True:
            messages.put(pickle.load(pipe))
    except EOFError:
        os._exit(0)
    except Exception as error:
        sys.stderr.write(f"a message could not be read: {error}\n")
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
