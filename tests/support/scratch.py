"""Where tests keep what is gone with them."""

from __future__ import annotations

import os
import shutil

__all__ = ["scratch"]


def scratch() -> str | None:
    """A folder in memory, if there is one with room: tests would mostly wait for a disk.

    A killed process loses no page of either. What a machine loses in a power cut is played by
    `tests.support.durability.disk`.
    """
    memory = "/dev/shm"  # a folder of our own is made in it
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
    return memory if roomy else None
