"""An archive: exported agents in a file, one a line of JSON.

A name that ends with `.jsonl` is plain text, `.jsonl.gz` is compressed by the standard library, and
`.jsonl.zst` by Zstandard, which Python has from 3.14 on: before, `pip install 'understudy[zstd]'`.
"""

from __future__ import annotations

import errno
import gzip
import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_core import from_json, to_json

from understudy._base.json_values import shown
from understudy.errors import StoreDamaged, UsageError
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.contracts import StoredAgent
from understudy.journal.retirement import WholeAgent
from understudy.journal.store_format import library_version
from understudy.state.record_format import FORMAT_VERSION, record_format
from understudy.state.records import record_to_dict

logger: logging.Logger = logging.getLogger(__name__)

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
"""The endings that the name of an archive may have."""


class _Form(NamedTuple):
    """The form of an archive: its lines are kept in parts, and each part can be read by itself."""

    packed: Callable[[bytes], bytes]
    unpacked: Callable[[bytes], bytes]
    opened: Callable[[str], Any]
    errors: tuple[type[Exception], ...]
    """The errors that reading raises if a part is not whole."""


def _form_of(path: Path) -> _Form:
    """The form of an archive with this name.

    Raises:
        UsageError: if it has another ending, or nothing here can read and write that form.

    """
    if path.name.endswith(".jsonl"):
        return _Form(bytes, bytes, partial(open, mode="rb"), ())
    if path.name.endswith(".jsonl.gz"):
        packed = cast("Callable[[bytes], bytes]", lambda data: gzip.compress(data, 6, mtime=0))
        return _Form(packed, gzip.decompress, gzip.open, (EOFError, gzip.BadGzipFile))
    if not path.name.endswith(".jsonl.zst"):
        raise UsageError(
            f"The name of an archive must end with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got "
            f"{str(path)!r}"
        )
    zstd = _zstd(path)
    return _Form(zstd.compress, zstd.decompress, zstd.open, (EOFError, zstd.ZstdError))


def _zstd(path: Path) -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{str(path)!r}: this Python has no Zstandard ({error}): pip install "
            "'understudy[zstd]', or let the name end with .jsonl.gz"
        ) from error


def checked_archive(path: object, *, what: str) -> Path:
    """The path of an archive that is to be made.

    Raises:
        UsageError: if it is no path, has another ending, is there already, or cannot be written.

    """
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise UsageError(f"{what} must be the path of a file, got {shown(path)}")
    found = Path(path)
    _form_of(found)
    if found.exists() or found.is_symlink():
        raise UsageError(f"{what}: {str(found)!r} is there already: give another name")
    checked_folder(found.parent, what=what)
    return found


def checked_folder(folder: object, *, what: str) -> Path:
    """The path of a folder in which archives are to be made.

    Raises:
        UsageError: if it is no path, there is no such folder, or this user may not write there.

    """
    if not isinstance(folder, str | os.PathLike) or not str(folder):
        raise UsageError(f"{what} must be the path of a folder, got {shown(folder)}")
    found = Path(folder)
    if not found.is_dir():
        raise UsageError(f"{what}: there is no folder {str(found)!r}: make it first")
    if not os.access(found, os.W_OK | os.X_OK):
        raise UsageError(f"{what}: this user may not write into {str(found)!r}")
    return found


def head_of(agent: StoredAgent, first_seq: int) -> dict[str, Any]:
    """Return the head of an export: all but its records, of which the first has this number."""
    return {
        "export_version": FORMAT_VERSION,
        "format": record_format(),
        "library": library_version(),
        "agent_id": agent.agent_id,
        "agent": agent.agent,
        "incarnation": agent.incarnation,
        "first_seq": first_seq,
    }


def export_line(whole: WholeAgent, at: datetime, by: str | None) -> bytes:
    """An agent as a line of an archive: what `export` returns, and when and by whom it was retired.

    Raises:
        SchemaVersionError, StoreDamaged: if a record cannot be read.

    """
    agent = whole.stored.agent
    head = head_of(agent, whole.stored.first_seq)
    head["retired"] = {"at": at.isoformat(), "by": by}
    if whole.blobs:
        from base64 import b64encode  # few agents have files

        head["blobs"] = {hash: b64encode(kept).decode() for hash, kept in whole.blobs.items()}
    if whole.message_runs:
        head["message_runs"] = dict(whole.message_runs)
    records = b",".join(map(_record_in_line, whole.stored.records))
    return to_json(head)[:-1] + b',"records":[' + records + b"]}\n"


def _record_in_line(record: EncodedRecord) -> bytes:
    """A record as `record_to_dict` has it. Its payload is the same JSON without the kind."""
    payload = bytes(record.payload)
    if record.version != FORMAT_VERSION:
        return to_json(record_to_dict(decode(record)))
    if not payload.startswith(b"{"):
        raise StoreDamaged(what=f"a record of kind {record.kind!r}", cause="it is no JSON object")
    kind = b'{"kind":' + to_json(record.kind)
    return kind + payload[1:] if payload == b"{}" else kind + b"," + payload[1:]


class Archive:
    """An archive that is being written. Used in a thread.

    Args:
        path: as of `checked_archive`. The file is made with the first lines.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size: int = 0
        """The size of the file, in bytes."""
        self._form = _form_of(path)
        self._file: int | None = None

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines as one part, have the disk keep them, and read them back.

        Raises:
            OSError: if they could not be written, or what is read back is something else. The file
                ends before them then.

        """
        data = b"".join(lines)
        part = self._form.packed(data)
        if self._file is None:
            self._file = self._made()
        try:
            self._write(self._file, part)
            os.fsync(self._file)
            found = self._read(self._file, len(part))
            if found != part or self._form.unpacked(found) != data:
                why = "what was read back is not what was written"
                raise OSError(errno.EIO, why, str(self.path))
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(part)

    def close(self) -> None:
        """Close the archive's file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _made(self) -> int:
        # What agents know is of the user who runs them. It must not be there: another runtime
        # may have begun an archive of this name after it was checked.
        made = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # some systems cannot
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # else a power cut may take the file with all that is in it
            finally:
                os.close(folder)
        return made

    def _write(self, file: int, part: bytes) -> None:
        os.lseek(file, self.size, os.SEEK_SET)
        view = memoryview(part)
        while view:
            view = view[os.write(file, view) :]

    def _read(self, file: int, length: int) -> bytes:
        os.lseek(file, self.size, os.SEEK_SET)
        found = bytearray()
        while len(found) < length and (more := os.read(file, length - len(found))):
            found += more
        return bytes(found)


def read_archive(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Read an archive: yield its exported agents, one by one, for `runtime.import_`.

    If the process that wrote the file was killed, the file may end in the middle of a part. That
    end is left out, with a warning in the log: its agents were not deleted.

    Raises:
        UsageError: if the file name has another ending, or a line is not an exported agent.
        OSError: if the file cannot be read.

    """
    file = Path(path)
    form = _form_of(file)
    with form.opened(str(file)) as lines:
        for number in count(1):
            try:
                line = lines.readline()
            except form.errors as error:
                logger.warning("the archive %r ends in the middle of a part: %s", str(file), error)
                return
            if not line:
                return
            if not line.endswith(b"\n"):
                logger.warning("the archive %r ends in the middle of a line", str(file))
                return
            try:
                data = from_json(line)
            except ValueError as error:
                raise UsageError(f"{str(file)!r}, line {number}, is no JSON: {error}") from error
            if not isinstance(data, dict) or "agent_id" not in data:
                raise UsageError(f"{str(file)!r}, line {number}, is no exported agent")
            yield data
