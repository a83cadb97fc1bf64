"""Our speed beside the rivals', in one run: `python -m benchmarks.compare`, or `make bench`.

Every framework and case has a process of its own, and only one runs at a time. Machines are noisy,
so all take turns within a round, rounds are repeated, and what counts are ratios of one round.
A rival that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import ADAPTERS, OUR_STEPS, STEPS
from benchmarks.machine import ROOT, import_cost, machine_line
from benchmarks.ours import BareLoop, Understudy
from benchmarks.table import Measured, render

__all__ = ["compare", "run_case"]

BASE_IMPORT = "import pydantic_ai.messages"
_ENVIRONMENT = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "unused",
}
"""No rival is to be slowed down by tracing, or stopped by the lack of a key that it never uses."""


def in_process(name: str, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """The numbers of one case of one framework, from a new process."""
    ours = name in (Understudy.name, BareLoop.name)
    steps = [str(n) for n in (OUR_STEPS if ours else STEPS)]
    limits = ["--runs", str(options.runs), "--seconds", str(options.seconds)]
    arguments = [name, case, *limits, "--steps", *steps]
    return run_case("benchmarks.cases", arguments, timeout=options.timeout)


def run_case(module: str, arguments: Sequence[str], *, timeout: float) -> dict[str, Any]:
    """What `python -m module` brings in a new process, or why it brings nothing."""
    case = arguments[1]
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, **_ENVIRONMENT},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"{case} took over {timeout} s"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return found
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {"error": f"{case}: {last[:300]}"}


def one_round(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All cases of one framework, once."""
    results: dict[str, Any] = {}
    cases = ["run", "concurrent"]
    if name in (Understudy.name, BareLoop.name):
        cases.append("growth")
    for case in cases:
        results[case] = in_process(name, case, options)
    statement = ADAPTERS[name].import_statement
    if statement:
        results["import"] = import_cost(statement)
    if name == Understudy.name:
        results["import_messages"] = import_cost(BASE_IMPORT)
    return results


def compare(names: Sequence[str], options: argparse.Namespace) -> list[Measured]:
    """Measure these frameworks, in turns."""
    measured = [Measured(name, ADAPTERS[name].versions()) for name in names]
    for index in range(options.rounds):
        for m in measured:
            if m.problem:
                continue
            _say(f"round {index + 1} of {options.rounds}: {m.name}")
            results = one_round(m.name, options)
            for case, result in results.items():
                if "missing" in result:
                    m.problem = f"not installed ({result['missing']})"
                elif "error" in result:
                    m.problem = f"failed ({case}: {result['error']})"
            if not m.problem:
                m.rounds.append(results)
    return measured


def _say(text: str) -> None:
    print(f"[{time.strftime('%T')}] {text}", file=sys.stderr, flush=True)


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=ADAPTERS, help="these rivals; ours always runs"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=200, help="most timed runs of a length a round")
    parser.add_argument("--seconds", type=float, default=0.5, help="a length; 3 runs at least")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one process")
    parser.add_argument("--json", type=Path, help="write all numbers there, too")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    options = _options(given)
    names = [
        name
        for name in ADAPTERS
        if options.only is None or name in options.only or name in (Understudy.name, BareLoop.name)
    ]
    machine = machine_line()
    measured = compare(names, options)
    if options.json is not None:
        found = {m.name: {"versions": m.versions, "rounds": m.rounds} for m in measured}
        options.json.write_text(json.dumps({"machine": machine, "frameworks": found}, indent=1))
    print(
        render(
            measured,
            ours=Understudy.name,
            floor=BareLoop.name,
            machine=machine,
            lengths=OUR_STEPS,
        )
    )


if __name__ == "__main__":
    main()
