"""Data formats: how to find and open data sets of one format. `nppr.formats` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from nppr.data.file_trees import Files
from nppr.data.splits import Labelled

SplitReaders = Mapping[str, Callable[[], Labelled]]
"""A data set's own splits by name, as functions that read them: unused splits are not read."""


@dataclass(frozen=True)
class DataFormat:
    """How to find and open the data sets of one format.

    title        name of the format in messages
    open_splits  opens the splits of the data set in a tree of files
    find         finds the folders of a tree that contain such a data set, as prefixes of names
    is_fallback  whether the format is tried only if no other is found
    suffixes     ends of the names of single files, opened as a tree whose `path` is the file
    members      names of the files to take from a `.tar.gz`, which is read in one pass
    open_arrays  opens the splits of a single file as arrays of any shape, whose range the user states
    open_name    opens the splits of a data set that has a name after a prefix, and no path
    """

    title: str
    open_splits: Callable[[Files], SplitReaders] = lambda _: {}
    find: Callable[[Files], Sequence[str]] = lambda _: ()
    is_fallback: bool = False
    suffixes: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()
    open_arrays: Callable[[Files], SplitReaders] | None = None
    open_name: Callable[[str], SplitReaders] | None = None


def find_folders(files: Files, holds_data: Callable[[str, Set[str]], bool]) -> list[str]:
    """Return the folders for which `holds_data(folder, names of its files)` is true."""
    folders: dict[str, set[str]] = {}
    for name in files.names:
        head, slash, tail = name.rpartition("/")
        if tail:
            folders.setdefault(head + slash, set()).add(tail)
    return [folder for folder, names in folders.items() if holds_data(folder, names)]
