"""`FileEdits`: what an attempt at a tool call changes of the files, until it has its result."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.state.files import FileChange, StoredFile, changed


class FileEdits:
    """The changes of one attempt at a call. Its result has them, in the same record.

    Args:
        attempt: tells this attempt from another one, in which the tool begins anew.

    """

    def __init__(self, attempt: object) -> None:
        self.attempt = attempt
        self.blobs: dict[str, bytes] = {}
        """What is to be kept of the files that it has written."""
        self._files: dict[str, StoredFile | None] = {}
        self._expected: dict[str, StoredFile | None] = {}

    def add(
        self,
        files: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None],
    ) -> None:
        """Change these paths; None: the path is gone.

        Args:
            files: by path.
            blobs: what is to be kept of them.
            expected: what the paths must be when the result is recorded, where that matters.

        """
        for path, file in expected.items():
            if path not in self._files:  # what this call itself has made is as it left it
                self._expected.setdefault(path, file)
        self._files.update(files)
        self.blobs.update(blobs)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The changes so far."""
        return tuple(FileChange(path=path, file=file) for path, file in self._files.items())

    def seen_over(self, files: Mapping[str, StoredFile]) -> Mapping[str, StoredFile]:
        """The files as this call sees them: with its own changes."""
        return changed(files, self.changes) if self._files else files

    def conflict(self, files: Mapping[str, StoredFile]) -> str | None:
        """The path of a file that another writer has changed since this call read it."""
        for path, file in self._expected.items():
            if files.get(path) != file:
                return path
        return None
