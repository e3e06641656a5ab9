"""What a format of stored data consists of; `data_loading` has the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from nppr.data.file_trees import Files
from nppr.data.splits import Labelled

SplitReaders = Mapping[str, Callable[[], Labelled]]
"""A data set's own splits by name, read when they are called: splits that are not used are not read."""


@dataclass(frozen=True)
class Format:
    """How the data sets of one format are found and opened.

    title        what a message calls the format
    open_splits  the splits of the data set in a tree of files
    find         the folders of a tree that hold a data set of this format, as prefixes of names
    fallback     whether the format is tried only where no other was found
    suffixes     ends of the names of single files, opened as a tree whose `path` is the file
    members      names of the files to take from a `.tar.gz`, which is read in one pass
    """

    title: str
    open_splits: Callable[[Files], SplitReaders]
    find: Callable[[Files], Sequence[str]] = lambda _: ()
    fallback: bool = False
    suffixes: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()


def find_folders(files: Files, holds_data: Callable[[str, Set[str]], bool]) -> list[str]:
    """The folders of which `holds_data(folder, names of the files in it)` is true."""
    folders: dict[str, set[str]] = {}
    for name in files.names:
        head, slash, tail = name.rpartition("/")
        if tail:
            folders.setdefault(head + slash, set()).add(tail)
    return [folder for folder, names in folders.items() if holds_data(folder, names)]
