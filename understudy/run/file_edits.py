"""`FileEdits`: the file changes of an attempt at a tool call, until the call has its result."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.state.files import FileChange, StoredFile, changed


class FileEdits:
    """The changes of one attempt at a call. The record of its result has them.

    Args:
        attempt: the number of the attempt: in another attempt the tool begins anew.

    """

    def __init__(self, attempt: object) -> None:
        self.attempt = attempt
        self.blobs: dict[str, bytes] = {}
        """The stored values of the files that it has written, by hash."""
        self._files: dict[str, StoredFile | None] = {}
        self._expected: dict[str, StoredFile | None] = {}

    def add(
        self,
        files: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None],
    ) -> None:
        """Change these paths. None removes a path.

        Args:
            files: the new files, by path.
            blobs: the stored values of the files, by hash.
            expected: what paths must be when the result is recorded, for the paths that matter.

        """
        for path, file in expected.items():
            if path not in self._files:  # this call's own files are as it left them
                self._expected.setdefault(path, file)
        self._files.update(files)
        self.blobs.update(blobs)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The changes so far."""
        return tuple(FileChange(path=path, file=file) for path, file in self._files.items())

    def seen_over(self, files: Mapping[str, StoredFile]) -> Mapping[str, StoredFile]:
        """The files as this call sees them, with its own changes."""
        return changed(files, self.changes) if self._files else files

    def conflict(self, files: Mapping[str, StoredFile]) -> str | None:
        """The path of a file that another writer has changed since this call read it."""
        for path, file in self._expected.items():
            if files.get(path) != file:
                return path
        return None
