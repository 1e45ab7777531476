"""Files of predictions: rows in csv and jsonl, columns in pt and npz, in the order of the data.

Each rank appends the rows of its batches to raw files, a part; rank 0 puts the parts in order and
writes the one file. So memory holds a batch and, at the end, a few numbers a row.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from trainer_hooks._files import replace_file
from trainer_hooks.runtime.nested_tensors import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO, TypeAlias

    from numpy.typing import NDArray

    _Integers: TypeAlias = NDArray[np.int64]
    Columns: TypeAlias = Mapping[str, Tensor | list[Any]]

ROOT = "prediction"
"""The name of a column whose prediction has no key."""

LOADER = "dataloader"
"""The name of the column that holds the loader's index, where there are several."""

_ABSENT = object()
"""Stands in a column for a row that has no such key."""

_CHUNK = 2**20
"""Bytes that are copied at once."""


@dataclass
class Table:
    """The rows of one batch.

    Attributes:
        columns: by name, a tensor with a row for each sample, or a list of their values.
        count: the number of rows.
    """

    columns: dict[str, Tensor | list[Any]]
    count: int


Rows = Tensor | list[Tensor] | list[bytes]
"""The values of a column in one batch: a tensor, one of each row, or the bytes of each row."""


@dataclass
class Column:
    """One raw file of a part, which holds the values of its rows one after the other.

    Attributes:
        number: the number of the file in its part.
        dtype: the type of its tensors; None for bytes of text.
        ndim: the number of dimensions of a row.
        shape: the shape of a row after its first dimension; None if rows have several.
    """

    number: int
    dtype: torch.dtype | None
    ndim: int
    shape: tuple[int, ...] | None

    @property
    def item_size(self) -> int:
        """The bytes of one number."""
        return 1 if self.dtype is None else self.dtype.itemsize

    def files(self, folder: Path, rank: int) -> tuple[Path, Path]:
        """Return the paths of the values, and of the shapes of the rows."""
        stem = f"{rank}.{self.number}"
        return folder / f"{stem}.values", folder / f"{stem}.shapes"


@dataclass
class Part:
    """The description of the files that one rank has written.

    Attributes:
        rank: the rank.
        header: the names of the columns of a csv.
        columns: the raw files by name; the lines of a text have an empty name.
    """

    rank: int
    header: list[str] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)

    @property
    def form(self) -> dict[str, Any]:
        """The keys and types of its rows, which all parts must share, as plain data."""
        types = {name: [str(column.dtype), column.ndim] for name, column in self.columns.items()}
        return {"header": self.header, "types": types}


def _different_forms(ranks: Iterable[int]) -> ValueError:
    """Return the error for ranks whose parts have different keys or types."""
    one, other = sorted(ranks)
    return ValueError(
        f"ranks {one} and {other} have returned different keys or types. Return the same for each "
        "batch, or take the ending .jsonl"
    )


# --- a batch's rows ---


def as_table(prediction: Any) -> Table:
    """Return the rows of a batch's predictions.

    A tensor or array has a row for each item of its first dimension, a list one for each of its
    items. The keys of dicts and the positions of tuples become names, joined by dots. A number or
    text is the same in all rows; alone it is one row.

    Raises:
        ValueError: tensors and lists have different numbers of rows.
    """
    columns: dict[str, Tensor | list[Any]] = {}
    constants: dict[str, Any] = {}
    leaves = list(_leaves(prediction, ""))
    for name, value in leaves:
        if isinstance(value, Tensor) and value.dim():
            columns[name or ROOT] = value
        elif isinstance(value, list):
            columns |= _columns_of_items(value, name)
        else:
            constants[name or ROOT] = value
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise ValueError(
            f"its parts have different numbers of rows ({shown}). A tensor has one for each item "
            "of its first dimension, a list one for each item: return a tuple or a dict of parts "
            "that have one for each sample"
        )
    count = next(iter(lengths.values()), 1)
    # in the order of the prediction, so that columns of a csv stand as they were returned
    named = {**columns, **{name: [value] * count for name, value in constants.items()}}
    order = dict.fromkeys([*(name or ROOT for name, _ in leaves), *named])
    return Table({name: named[name] for name in order if name in named}, count)


def _columns_of_items(items: list[Any], name: str) -> dict[str, Tensor | list[Any]]:
    """Return the columns of a list with an item for each sample; items may have keys themselves."""
    rows = [dict(_leaves(item, name)) for item in items]
    names = dict.fromkeys(key for row in rows for key in row) or {name: None}
    return {key or ROOT: [row.get(key, _ABSENT) for row in rows] for key in names}


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values below dicts, tuples and dataclasses, with their names."""
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, tuple):
        pairs = list(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    elif is_dataclass(value) and not isinstance(value, type):
        pairs = [(item.name, getattr(value, item.name)) for item in fields(value)]
    else:
        yield name, _plain_leaf(value)
        return
    for key, inner in pairs:
        yield from _leaves(inner, f"{name}.{key}" if name else str(key))


def _plain_leaf(value: Any) -> Any:
    """Return a tensor on the CPU, and arrays and numbers of NumPy as those of torch and Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "OSUM" else torch.from_numpy(value.copy())
    if isinstance(value, Tensor):
        value = value.detach()
        if value.is_nested:
            return [row.cpu() for row in value.unbind()]
        return (value if value.layout == torch.strided else value.to_dense()).cpu()
    return value


def _plain(value: Any) -> Any:
    """Return a value of plain JSON types.

    Raises:
        ValueError: it is none, and holds none.
    """
    value = _plain_leaf(value)
    if isinstance(value, Tensor) and not value.is_complex():
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    shown = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(
        f"it holds {shown}. Return tensors, numbers and texts, or lists, tuples and dicts of these"
    )


# --- the parts of the ranks ---


class PartWriter:
    """Append the rows of batches to the raw files of one rank.

    Args:
        folder: the folder of the parts.
        rank: the rank.
        output: the format.
    """

    def __init__(self, folder: Path, rank: int, output: type[Format]) -> None:
        self.part = Part(rank)
        self._folder, self._output = folder, output
        self._open = ExitStack()
        self._files: dict[str, tuple[BinaryIO, BinaryIO]] = {}
        self._keys = self._open_file(_keys_file(folder, rank))

    def append(self, table: Table, keys: Sequence[tuple[int, int]]) -> None:
        """Append rows with their keys: the index of the loader, and of the sample or -1.

        Raises:
            ValueError: the format cannot hold them, or another rank's have other keys or types.
        """
        if not table.count:
            return
        part, columns = self.part, self._output.encode(table.columns, self.part.header)
        if part.columns and part.columns.keys() != columns.keys():
            raise ValueError(
                f"it has the keys {_shown(columns)} and another batch {_shown(part.columns)}. Take "
                "the ending .jsonl, in which each row has its own"
            )
        is_first = not part.columns
        for name, rows in columns.items():
            self._append_rows(name, rows)
        if is_first:
            self._require_form_of_others()
        self._keys.write(np.array(keys, np.int64).tobytes())

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def _require_form_of_others(self) -> None:
        """Require the keys and types of the ranks that have begun, now and not hours later.

        Of two ranks, the one that begins later learns of the other by its file in the folder. So
        the ranks need not meet: some may have no batch.
        """
        form, rank = self.part.form, self.part.rank
        replace_file(self._folder / f"{rank}.form", lambda file: json.dump(form, file))
        for path in self._folder.glob("*.form"):
            if json.loads(path.read_text(encoding="utf-8")) != form:
                raise _different_forms([rank, int(path.stem)])

    def _open_file(self, path: Path) -> BinaryIO:
        return self._open.enter_context(path.open("wb"))

    def _append_rows(self, name: str, rows: Rows) -> None:
        added = _describe(rows, len(self.part.columns))
        column = self.part.columns.setdefault(name, added)
        if name not in self._files:
            paths = column.files(self._folder, self.part.rank)
            self._files[name] = self._open_file(paths[0]), self._open_file(paths[1])
        if (added.dtype, added.ndim) != (column.dtype, column.ndim):
            raise ValueError(
                f"{name!r} has rows of {added.ndim} dimensions of {added.dtype}, and others of "
                f"{column.ndim} of {column.dtype}. Return the same type for each batch, or take "
                "the ending .jsonl"
            )
        if added.shape != column.shape:
            column.shape = None
        self._output.check_shape(name, column)
        values_file, shapes_file = self._files[name]
        if isinstance(rows, Tensor):
            values_file.write(_bytes(rows))
            shapes = np.broadcast_to(np.array(rows.shape[1:], np.int64), (len(rows), column.ndim))
        else:
            values_file.writelines(_bytes(row) if isinstance(row, Tensor) else row for row in rows)
            shapes = np.array(
                [row.shape if isinstance(row, Tensor) else (len(row),) for row in rows], np.int64
            )
        shapes_file.write(shapes.tobytes())


def _describe(rows: Rows, number: int) -> Column:
    """Return the column that rows belong to."""
    if isinstance(rows, Tensor):
        return Column(number, rows.dtype, rows.dim() - 1, tuple(rows.shape[2:]))
    first = rows[0]
    if isinstance(first, bytes):
        return Column(number, None, 1, ())
    tensors = cast("list[Tensor]", rows)
    kinds = {(row.dtype, row.dim()) for row in tensors}
    if len(kinds) > 1:
        raise ValueError(
            "its rows have tensors of several types or numbers of dimensions. Return the same for "
            "each sample, or take the ending .jsonl"
        )
    shapes = {tuple(row.shape[1:]) for row in tensors}
    return Column(number, first.dtype, first.dim(), shapes.pop() if len(shapes) == 1 else None)


def _bytes(tensor: Tensor) -> bytes:
    """Return the numbers of a tensor as bytes; NumPy has no bfloat16."""
    return bytes_of(tensor).numpy().tobytes()


def _shown(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _keys_file(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.keys"


class MergedParts:
    """The parts of all ranks, with their rows in the order of the data.

    Rows without an index of their sample come rank by rank. A sample that several ranks have
    predicted, as a sampler repeats some to give all ranks equally many, is there once.

    Args:
        folder: the folder of the parts.
        parts: their descriptions.

    Raises:
        ValueError: the ranks have different columns.
    """

    def __init__(self, folder: Path, parts: Sequence[Part]) -> None:
        self._folder = folder
        self._parts = [part for part in parts if part.columns]
        self.header = self._parts[0].header if self._parts else []
        self.columns = self._parts[0].columns if self._parts else {}
        for part in self._parts:
            # also here: on a network's disk the ranks may have seen each other's files late
            if part.form != self._parts[0].form:
                raise _different_forms([self._parts[0].rank, part.rank])
            for name, column in self.columns.items():
                if column.shape != part.columns[name].shape:
                    column.shape = None
        self._part_of, self._row_of = self._sorted_rows()

    def __len__(self) -> int:
        return len(self._row_of)

    def _sorted_rows(self) -> tuple[_Integers, _Integers]:
        """Return for each row of the file its part, and its row there."""
        keys = [
            np.fromfile(_keys_file(self._folder, part.rank), np.int64).reshape(-1, 2)
            for part in self._parts
        ]
        if not keys:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        counts = [len(rows) for rows in keys]
        parts = np.repeat(np.arange(len(keys)), counts)
        rows = np.concatenate([np.arange(count) for count in counts])
        loaders, samples = np.concatenate(keys).T
        order = np.lexsort((rows, parts, samples, loaders))
        parts, rows, loaders, samples = (
            values[order] for values in (parts, rows, loaders, samples)
        )
        # of a sample's rows, those of the first rank that has it
        starts = np.ones(len(rows), bool)
        starts[1:] = (samples[1:] != samples[:-1]) | (loaders[1:] != loaders[:-1])
        first_parts = parts[starts][np.cumsum(starts) - 1]
        stays = (samples < 0) | (parts == first_parts)
        return parts[stays], rows[stays]

    def shapes(self, name: str) -> _Integers:
        """Return the shape of each row of a column."""
        shapes = self._shapes_of_parts(name)
        if len(shapes) == 1:
            return shapes[0][self._row_of]
        starts = np.cumsum([0, *(len(rows) for rows in shapes)])
        return np.concatenate(shapes)[starts[self._part_of] + self._row_of]

    def copy(self, name: str, write: Callable[[Any], object]) -> None:
        """Write the values of a column, in order."""
        if not len(self):
            return
        sizes = [
            rows.prod(axis=1) * self.columns[name].item_size for rows in self._shapes_of_parts(name)
        ]
        ends = [np.cumsum(part_sizes) for part_sizes in sizes]
        paths = [part.columns[name].files(self._folder, part.rank)[0] for part in self._parts]
        # a run of rows that stand in a part one after the other is copied at once
        is_new = np.ones(len(self), bool)
        is_new[1:] = (np.diff(self._part_of) != 0) | (np.diff(self._row_of) != 1)
        begins = np.flatnonzero(is_new)
        lasts = np.append(begins[1:], len(self)) - 1
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in paths]
            for begin, last in zip(begins.tolist(), lasts.tolist(), strict=True):
                part = int(self._part_of[begin])
                row = int(self._row_of[begin])
                start = int(ends[part][row] - sizes[part][row])
                files[part].seek(start)
                missing = int(ends[part][int(self._row_of[last])]) - start
                while missing:
                    data = files[part].read(min(missing, _CHUNK))
                    write(data)
                    missing -= len(data)

    def _shapes_of_parts(self, name: str) -> list[_Integers]:
        shapes_of_parts = []
        for part in self._parts:
            column = part.columns[name]
            count = _keys_file(self._folder, part.rank).stat().st_size // 16
            shapes = np.fromfile(column.files(self._folder, part.rank)[1], np.int64)
            shapes_of_parts.append(shapes.reshape(count, column.ndim))
        return shapes_of_parts


# --- the formats ---


class Format:
    """A format of a file of predictions."""

    @staticmethod
    def encode(columns: Columns, header: list[str]) -> dict[str, Rows]:
        """Return the rows of a batch as they stand in the raw files.

        Args:
            columns: the columns by name.
            header: the names of a csv, which the first batch fills in.

        Raises:
            ValueError: the format cannot hold them.
        """
        raise NotImplementedError

    @staticmethod
    def check_shape(name: str, column: Column) -> None:
        """Raise a ValueError for rows of several shapes that the format cannot hold."""

    @staticmethod
    def write(rows: MergedParts, path: Path, folder: Path) -> None:
        """Write the file.

        Args:
            rows: the rows.
            path: the path of the file.
            folder: a folder for further raw files.
        """
        raise NotImplementedError


class JsonLines(Format):
    """An object for each row; tensors are lists."""

    @staticmethod
    def encode(columns: Columns, header: list[str]) -> dict[str, Rows]:  # noqa: ARG004
        """Return the lines."""
        lists = [
            [value if value is _ABSENT else _plain(value) for value in _listed(column)]
            for column in columns.values()
        ]
        lines = []
        for values in zip(*lists, strict=True):
            pairs = zip(columns, values, strict=True)
            row = {name: value for name, value in pairs if value is not _ABSENT}
            text = json.dumps(row, ensure_ascii=False)
            lines.append(text.encode(errors="backslashreplace") + b"\n")
        return {"": lines}

    @staticmethod
    def write(rows: MergedParts, path: Path, folder: Path) -> None:  # noqa: ARG004
        """Write the lines."""
        with path.open("wb") as file:
            rows.copy("", file.write)


class Csv(Format):
    """A line for each row, after one with the names; tensors of several numbers have several."""

    @staticmethod
    def encode(columns: Columns, header: list[str]) -> dict[str, Rows]:
        """Return the lines, and fill in the header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        lines = []
        names = list(columns)
        for values in zip(*map(_listed, columns.values()), strict=True):
            cells = dict(
                cell
                for name, value in zip(names, values, strict=True)
                for cell in Csv._cells(name, value)
            )
            header[:] = header or cells
            if list(cells) != header:
                raise ValueError(
                    f"a row has the columns {_shown(cells)} and another {_shown(header)}: a csv "
                    "has the same in all rows. Take the ending .jsonl"
                )
            writer.writerow(cells.values())
            lines.append(text.getvalue().encode(errors="backslashreplace"))
            text.seek(0)
            text.truncate()
        return {"": lines}

    @staticmethod
    def _cells(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the cells of a row: one of a number or text, several of a longer list."""
        if value is _ABSENT:
            return
        value = _plain(value)
        while isinstance(value, list) and len(value) == 1:
            (value,) = value
        if isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004 - of the prediction, as the others
                f"{name!r} is a dict inside of a list. Take the ending .jsonl"
            )
        if not isinstance(value, list):
            yield name, value
            return
        for number, item in enumerate(value):
            # of a prediction that is a tensor alone the columns are named 0, 1, ...
            yield from Csv._cells(str(number) if name == ROOT else f"{name}.{number}", item)

    @staticmethod
    def write(rows: MergedParts, path: Path, folder: Path) -> None:  # noqa: ARG004
        """Write the header and the lines."""
        with path.open("wb") as file:
            if rows.header:
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerow(rows.header)
                file.write(text.getvalue().encode(errors="backslashreplace"))
            rows.copy("", file.write)


class Arrays(Format):
    """An array for each name; of rows of several lengths one of all values and one of lengths."""

    @staticmethod
    def encode(columns: Columns, header: list[str]) -> dict[str, Rows]:  # noqa: ARG004
        """Return the tensors."""
        tensors = {name: _tensors(name, column) for name, column in columns.items()}
        for name, rows in tensors.items():
            if rows is None:
                raise ValueError(
                    f"{name!r} holds {_kind_of_object(columns[name])}, and an .npz holds numbers. "
                    "Take the ending .jsonl, or .pt"
                )
        return {name: _numpy_types(rows) for name, rows in tensors.items() if rows is not None}

    @staticmethod
    def check_shape(name: str, column: Column) -> None:
        """Refuse rows that differ in more than their first dimension."""
        if column.shape is None:
            raise ValueError(
                f"rows of {name!r} differ in more than their first dimension. Take the ending .pt, "
                "or .jsonl"
            )

    @staticmethod
    def write(rows: MergedParts, path: Path, folder: Path) -> None:  # noqa: ARG004
        """Write the arrays one after the other."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, column in rows.columns.items():
                shapes = rows.shapes(name)
                shape: tuple[int, ...] = (len(rows), *shapes[0].tolist())
                if _is_ragged(shapes):
                    shape = (int(shapes[:, 0].sum()), *shapes[0, 1:].tolist())
                    with archive.open(f"{name}.lengths.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.ascontiguousarray(shapes[:, 0]))
                descr = torch.empty(0, dtype=column.dtype).numpy().dtype.str
                about = {"descr": descr, "fortran_order": False, "shape": shape}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array_header_2_0(file, about)
                    rows.copy(name, file.write)


class Tensors(Format):
    """A dict with a tensor for each name; a list of tensors or texts where rows differ in size."""

    @staticmethod
    def encode(columns: Columns, header: list[str]) -> dict[str, Rows]:  # noqa: ARG004
        """Return the tensors, and other values as JSON."""
        encoded: dict[str, Rows] = {}
        for name, column in columns.items():
            tensors = _tensors(name, column)
            encoded[name] = (
                [json.dumps(_plain(value)).encode() for value in column]
                if tensors is None
                else tensors
            )
        return encoded

    @staticmethod
    def write(rows: MergedParts, path: Path, folder: Path) -> None:
        """Write the dict; its tensors are mapped from raw files, and so never in memory whole."""
        content: dict[str, Any] = {}
        for number, (name, column) in enumerate(rows.columns.items()):
            raw = folder / f"{number}.ordered"
            with raw.open("wb") as file:
                rows.copy(name, file.write)
            size, shapes = raw.stat().st_size, rows.shapes(name)
            lengths = shapes.prod(axis=1)
            if column.dtype is None:
                data = raw.read_bytes()
                stops = np.cumsum(lengths)
                bounds = zip((stops - lengths).tolist(), stops.tolist(), strict=True)
                content[name] = [json.loads(data[start:stop]) for start, stop in bounds]
                continue
            flat = torch.empty(0, dtype=torch.uint8)
            if size:
                flat = torch.from_file(str(raw), size=size, dtype=torch.uint8)
            flat = flat.view(column.dtype)
            if _is_ragged(shapes):
                pieces = torch.split(flat, lengths.tolist())
                pairs = zip(pieces, shapes.tolist(), strict=True)
                content[name] = [values.view(shape) for values, shape in pairs]
            else:
                content[name] = flat.view(len(rows), *shapes[0].tolist())
        torch.save(content, path)


FORMATS: dict[str, type[Format]] = {
    ".csv": Csv,
    ".jsonl": JsonLines,
    ".npz": Arrays,
    ".pt": Tensors,
}
"""The formats by the ending of the file."""


def _is_ragged(shapes: _Integers) -> bool:
    return bool((shapes != shapes[0]).any())


def _listed(column: Tensor | list[Any]) -> list[Any]:
    """Return the values of a column, tensors as lists."""
    return _plain(column) if isinstance(column, Tensor) else column


def _tensors(name: str, column: Tensor | list[Any]) -> Tensor | list[Tensor] | None:
    """Return a column as tensors; None if it holds other values.

    Raises:
        ValueError: a row has no such value.
    """
    if isinstance(column, Tensor):
        return column
    if any(value is _ABSENT for value in column):
        raise ValueError(
            f"some rows have no {name!r}. Take the ending .jsonl, in which each row has its own"
        )
    if all(isinstance(value, Tensor) for value in column):
        return column
    if all(isinstance(value, int | float) for value in column):
        return torch.tensor(column)
    return None


def _numpy_types(rows: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
    """Return tensors of a type that NumPy has: those of bfloat16 and float8 as float32."""
    if isinstance(rows, list):
        return [cast("Tensor", _numpy_types(row)) for row in rows]
    has_type = not rows.is_floating_point() or rows.dtype in (
        torch.float16,
        torch.float32,
        torch.float64,
    )
    return rows if has_type else rows.float()


def _kind_of_object(column: Tensor | list[Any]) -> str:
    kinds = (
        type(value).__name__ for value in column if not isinstance(value, Tensor | int | float)
    )
    return f"values of type {next(kinds, 'several types')!r}"
