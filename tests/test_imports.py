"""What is imported: by the library no more than an `Agent` needs, by tests what is in support.

Rules: O4, U20.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.sources import ROOT, sources

LATER = (
    "understudy._base.notebook_html",
    "understudy.actors",
    "understudy.loop_actors.future",
    "understudy.loop_actors.supervisor",
    "understudy.journal.database_store",
    "understudy.journal.store",
    "understudy.journal.memory",
    "understudy.journal.committer",
    "understudy.journal.feed",
    "understudy.journal.lists",
    "understudy.journal.sqlite",
    "understudy.journal.postgres",
    "understudy.state.notebook_html",
    "understudy.history",
    "understudy.agent.background",
    "understudy.run.background",
    "understudy.actors.background",
    "understudy.actors.agent.background_agent",
    "understudy.actors.agent.cron",
    "understudy.modes.steps.model_call.ask_separately",
    "understudy.middleware.ask_user",
    "understudy.middleware.todo_list",
    "understudy.middleware.workspace",
    "understudy.middleware.rate_limit",
    "understudy.middleware.summarization",
    "understudy.models.token_counts",
    "understudy.telemetry",
    "understudy.login.oidc",
    "understudy.middleware.retry",
    "understudy.tools.foreign.foreign_tool",
    "joserfc",
    *("tenacity", "tornado"),
    *("pykka", "sqlite3", "psycopg", "cronsim", "zoneinfo", "multiprocessing"),
)
RUN = (
    "import understudy\n"
    "agent = understudy.Agent('a', understudy.ScriptedModel(['hello']))\n"
    "assert agent.execute_sync('Hello.').text == 'hello'\n"
)
HOST = "from understudy import Runtime\nwith Runtime([]): pass\n"


def loaded(code: str) -> set[str]:
    """Which of these modules are loaded after the code, beyond those of Pydantic AI."""
    script = (
        "import sys\nimport pydantic_ai\nbefore = set(sys.modules)\n"
        f"{code}\nprint(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name for name in LATER if name in done.stdout.split()}


@pytest.mark.slow
def test_a_plain_import_loads_no_actors_and_stores() -> None:
    """M12."""
    assert loaded("import understudy") == set()


@pytest.mark.slow
def test_an_agent_that_runs_without_a_runtime_loads_none_of_them_either() -> None:
    assert loaded(RUN) == set()


@pytest.mark.slow
def test_a_runtime_loads_no_database_and_no_calendar() -> None:
    found = loaded(HOST)
    assert "understudy.actors" in found
    assert found & {"understudy.journal.sqlite", "sqlite3", "psycopg", "cronsim"} == set()
    assert "understudy.telemetry" not in found
    assert [name for name in found if "background" in name] == []


@pytest.mark.slow
def test_the_names_of_the_package_load_no_retries() -> None:
    """Tenacity loads Tornado where that is installed. It is for policies, and for databases."""
    assert loaded("from understudy import *") & {"tenacity", "tornado"} == set()


@pytest.mark.slow
def test_pages_load_nothing_for_tokens_of_an_identity_provider() -> None:
    assert loaded("import understudy.web") & {"understudy.login.oidc", "joserfc"} == set()


def test_a_name_that_there_is_not_is_an_error_as_of_any_module() -> None:
    import understudy
    import understudy.journal

    for package in (understudy, understudy.journal):
        with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute"):
            _ = package.Nothing
        assert set(package.__all__) <= set(dir(package))


IMPORTED = re.compile(r"\b(?:from|import) (?:tests(?!\.support\b)|\.)[\w.]*")
"""Of what is beside a module, or of `tests` but not of its support; also in a program's text."""


def test_test_modules_import_from_support_alone() -> None:
    """One that imports from another breaks with it, and has its fixtures and patches as well."""
    found = {
        (str(path.relative_to(ROOT)), line)
        for path in sources("tests")
        for line in IMPORTED.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "module", ["tests", "tests.actors", "tests.actors.test_waits", ".conftest"]
)
def test_an_import_from_a_test_module_is_found(module: str) -> None:
    assert IMPORTED.findall(f"from {module} import desk\n") == [f"from {module}"]
    assert IMPORTED.findall(f'program = "from {module} import desk"') == [f"from {module}"]
    assert IMPORTED.findall("from tests.support.agents import desk") == []
