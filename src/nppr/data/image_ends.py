"""Whether an encoded image has its end: pillow fills in what a short file lacks, and says nothing."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["has_end"]

PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
JPEG_SCAN, JPEG_END = 0xDA, b"\xff\xd9"


def has_end(kind: str | None, content: bytes) -> bool:
    """True where the format marks its end or length and the file has it, or where it marks none.

    Bytes after the end are no damage: cameras and editors put their own things there.
    """
    check = CHECKS.get(kind or "")
    return check is None or check(content)


def _png(content: bytes) -> bool:
    return PNG_END in content


def _jpeg(content: bytes) -> bool:
    """Whether an end marker follows the start of the scan; a thumbnail before it has its own."""
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF and content[at + 1] != JPEG_SCAN:
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return JPEG_END in content[at:]


def _bmp(content: bytes) -> bool:
    return int.from_bytes(content[2:6], "little") <= len(content)


def _webp(content: bytes) -> bool:
    return int.from_bytes(content[4:8], "little") + 8 <= len(content)


def _gif(content: bytes) -> bool:
    return content.rstrip(b"\0").endswith(b";")


CHECKS: dict[str, Callable[[bytes], bool]] = {
    "BMP": _bmp,
    "GIF": _gif,
    "JPEG": _jpeg,
    "MPO": _jpeg,
    "PNG": _png,
    "WEBP": _webp,
}
