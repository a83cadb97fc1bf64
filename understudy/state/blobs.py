"""The stored form of a file's bytes: pieces, each under its hash.

A file of one piece is stored as that piece. A larger file is stored as the list of the hashes of
its pieces, under the hash of the whole. The end of a piece depends on the bytes right before it. So
a change in the middle of a file changes one piece or two, and all versions share the other pieces.
No version depends on another version.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from zlib import crc32

from understudy._base.json_values import shown
from understudy.errors import StoreDamaged, UsageError
from understudy.state.files import StoredFile

SHORTEST = 2 * 1024
LONGEST = 16 * 1024
"""The maximum bytes of a piece; most have about 6 KB. The last piece of a file may be shorter."""
MAX_DUMPED = 8 * 1024 * 1024
"""The maximum bytes of files in the data of a state."""
_WHOLE, _LIST = b"\0", b"\1"
"""The first byte of a stored value: the bytes of a piece follow, or the hashes of pieces."""
_DIGEST = 32
_HASH = re.compile("[0-9a-f]{64}")
# A piece may end behind such a pair of bytes: every fiftieth place in text, every sixtieth in other
# bytes. The checksum of the bytes right before selects one in 128 of these places. The search is in
# C: a MB takes 5 ms.
_WINDOW = 32
_TAKEN = 0x7F
_PLACE = re.compile(
    b"[%b][%b]"
    % tuple(
        b"".join(re.escape(bytes([byte])) for byte in range(256) if byte % 8 == rest)
        for rest in (2, 5)
    )
)


def pack(data: bytes) -> tuple[StoredFile, dict[str, bytes]]:
    """The file of these bytes, and the values to store for it, by hash."""
    file = StoredFile(hash=sha256(data).hexdigest(), size=len(data))
    pieces = list(_pieces(data))
    if len(pieces) <= 1:
        return file, {file.hash: _WHOLE + data}
    digests = [sha256(piece).digest() for piece in pieces]
    kept = {digest.hex(): _WHOLE + piece for digest, piece in zip(digests, pieces, strict=True)}
    kept[file.hash] = _LIST + b"".join(digests)
    return file, kept


def _pieces(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = _end(data, begin)
        yield data[begin:end]
        begin = end


def _end(data: bytes, begin: int) -> int:
    """The index at which the piece that begins here ends."""
    last = min(begin + LONGEST, len(data))
    for found in _PLACE.finditer(data, min(begin + SHORTEST, last), last):
        end = found.end()
        if crc32(data[end - _WINDOW : end]) & _TAKEN == 0:
            return end
    return last


def chunks_of(kept: bytes) -> list[str]:
    """The hashes of the pieces, if the stored value is a list of hashes; else none."""
    if kept[:1] != _LIST:
        return []
    return [kept[n : n + _DIGEST].hex() for n in range(1, len(kept), _DIGEST)]


def unpack(file: StoredFile, kept: Mapping[str, bytes]) -> bytes:
    """The bytes of a file, from the values stored for it.

    Raises:
        StoreDamaged: if they are not the bytes that were packed.

    """
    first = kept[file.hash]
    data = b"".join(kept[hash][1:] for hash in chunks_of(first)) or first[1:]
    if sha256(data).hexdigest() != file.hash:
        raise StoreDamaged(what="the bytes of a file", cause=f"they are not those of {file.hash}")
    return data


def check_kept(hashes: Iterable[str], kept: Mapping[str, bytes]) -> None:
    """Raise `ValueError` if a part of these files is missing, or has a wrong hash."""
    for hash, payload in kept.items():
        whole = b"".join(kept[piece][1:] for piece in chunks_of(payload)) or payload[1:]
        if sha256(whole).hexdigest() != hash:
            raise ValueError(f"the bytes under {hash!r} are not those of this hash")
    for hash in hashes:
        if hash not in kept:
            raise ValueError(f"the bytes of a file are missing: {hash!r}")


def checked_hashes(hashes: object) -> tuple[str, ...]:
    """Hashes under which a store may keep bytes.

    Raises:
        UsageError: if one of them cannot be a hash.

    """
    if isinstance(hashes, str) or not isinstance(hashes, Iterable):
        raise UsageError(f"load_blobs() takes a list of hashes, got {shown(hashes)}")
    found = tuple(hashes)
    for hash in found:
        if not isinstance(hash, str) or not _HASH.fullmatch(hash):
            raise UsageError(
                f"load_blobs() takes hashes of 64 hexadecimal digits, got {shown(hash)}: those of "
                "files are in `state.files`"
            )
    return found


def in_use(hashes: Iterable[str], kept: Mapping[str, bytes]) -> set[str]:
    """The hashes in `kept` of which the files with these hashes consist."""
    used: set[str] = set()
    for hash in hashes:
        if hash in kept:
            used.add(hash)
            used.update(chunks_of(kept[hash]))
    return used


def dumped_blobs(kept: Mapping[str, bytes], hashes: Iterable[str]) -> dict[str, str]:
    """The stored values of the files with these hashes, as JSON-able data.

    Raises:
        UsageError: if the values are more than 8 MiB.

    """
    used = sorted(in_use(hashes, kept) & kept.keys())
    size = sum(len(kept[hash]) for hash in used)
    if size > MAX_DUMPED:
        raise UsageError(
            f"the files of this state have {size:,} bytes; the data of a state takes at most "
            f"{MAX_DUMPED:,}: keep the agent in a store, and move it by export and import_"
        )
    return {hash: b64encode(kept[hash]).decode() for hash in used}
