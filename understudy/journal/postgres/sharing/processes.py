"""Which process this is, and whether another one of this machine has ended: for certain, or not.

A pid says nothing by itself: other machines, containers and later processes have the same one. So
a process is named by where its pid counts (one boot of one kernel, one pid namespace, one time
namespace), by the pid, and by when it started, which no later process of that pid shares. Only
Linux tells all of that. Where it is not known, no process counts as ended.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from understudy.journal.shared import Process

_UNKNOWN = (OSError, ValueError, IndexError)
"""What reading a file of the kernel's raises that is not there, or says nothing."""


def this_process(proc: str = "/proc") -> Process | None:
    """The identity of this process; None where it cannot be known for certain."""
    pid = os.getpid()
    try:
        # With a /proc of another pid namespace, mounted into a container, the numbers in it are
        # not those that this process knows.
        if str(Path(proc, "self").readlink()) != str(pid):
            return None
        boot = Path(f"{proc}/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        pids = Path(proc, "self/ns/pid").readlink()
        state, started = _stat(pid, proc)
    except _UNKNOWN:
        return None
    times = ""
    with suppress(OSError):  # kernels before 5.6 have none
        times = str(Path(proc, "self/ns/time").readlink())
    return Process(f"{boot} {pids} {times}", pid, started) if boot and state else None


def has_ended(process: Process, here: Process | None, proc: str = "/proc") -> bool:
    """Whether a process has ended for certain. One that is only stopped has not.

    Args:
        process: the other one.
        here: `this_process()`.
        proc: where the kernel tells of its processes.

    """
    if here is None or process.place != here.place or process.pid <= 0:
        return False
    try:
        # Asked first: with the mount option hidepid, /proc does not show what others run.
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it is another user's; or no pid at all
    try:
        state, started = _stat(process.pid, proc)
    except _UNKNOWN:
        return False
    return started != process.started or state in ("Z", "X")


def _stat(pid: int, proc: str) -> tuple[str, int]:
    """The state of a process, and when it started.

    `Z` (it has ended, and its parent has not asked for its exit code) only where no thread of it
    goes on without the first one.
    """
    text = Path(f"{proc}/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The name of the program is in brackets, and may itself hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return ("S" if state == "Z" and threads > 1 else state), started
