"""These tests are of an environment of their own, which `make test-others` makes."""

from importlib.metadata import PackageNotFoundError, version

NEEDED = ("google-adk", "langchain", "langgraph", "openai-agents", "pydantic-ai-harness")


def _is_there(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


collect_ignore_glob = [] if all(map(_is_there, NEEDED)) else ["test_*.py"]
