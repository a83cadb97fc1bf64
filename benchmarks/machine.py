"""The machine that the numbers come from, and what an import costs on it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["CLIENTS", "ROOT", "import_cost", "machine_line"]

ROOT = Path(__file__).parents[1]
CLIENTS = (
    "anthropic",
    "boto3",
    "cohere",
    "google.genai",
    "groq",
    "huggingface_hub",
    "mistralai",
    "openai",
    "xai_sdk",
)
"""Packages of model providers, which only a program that uses them should load."""

_PROGRAM = """
import json, sys, time
start = time.process_time()
{statement}
print(json.dumps([time.process_time() - start, list(sys.modules)]))
"""


def machine_line() -> str:
    """Enough to judge the machine by, with the time of an arithmetic loop."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        sum(i * i for i in range(10**6))
        times.append((time.perf_counter() - start) * 1e3)
    load = "unknown"
    if sys.platform != "win32":
        load = f"{os.getloadavg()[0]:.1f}"
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {load}, "
        f"a loop of 10^6 multiplications {median(times):.0f} ms"
    )


def import_cost(statement: str, times: int = 3) -> dict[str, Any]:
    """Seconds that `statement` takes in a new interpreter, and the provider clients it loads."""
    found = _imported(statement)  # not counted: it may have to compile and to read from disk
    if "seconds" in found:
        found["seconds"] = median(_imported(statement)["seconds"] for _ in range(times))
    return found


def _imported(statement: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(statement=statement)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"missing" if "ModuleNotFoundError" in last else "error": last}
    seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, "clients": sorted(set(CLIENTS) & set(modules))}
