"""Checkpoints: what they hold, and writing and reading them safely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.checkpoint.background import BackgroundSave, BackgroundSaves
    from trainer_hooks.checkpoint.contents import (
        dtype_name,
        place_in_words,
        sections_of,
        tensor_bytes,
    )
    from trainer_hooks.checkpoint.difference import Difference, How, Tolerance, differences
    from trainer_hooks.checkpoint.encoding import Encoder
    from trainer_hooks.checkpoint.file import (
        read_checkpoint,
        summarize,
        verify_checkpoint,
        write_checkpoint,
    )
    from trainer_hooks.checkpoint.find import Search
    from trainer_hooks.checkpoint.folder import is_folder, size_of_folder
    from trainer_hooks.checkpoint.folder_reading import names_by_place, read_shards
    from trainer_hooks.checkpoint.folder_writing import require_local, write_folder
    from trainer_hooks.checkpoint.hparams import (
        HyperParameters,
        arguments_from,
        arguments_of_init,
        is_whole,
        savable,
        selected,
    )
    from trainer_hooks.checkpoint.inspection import (
        Contents,
        Fault,
        Kind,
        UnusableFileError,
        inspect_file,
        mapping,
        verify_file,
    )
    from trainer_hooks.checkpoint.lightning import is_lightning, place_of
    from trainer_hooks.checkpoint.loading import load_checkpoint, load_parts
    from trainer_hooks.checkpoint.migrations import FORMAT
    from trainer_hooks.checkpoint.parts import NameClaim, claim_name, try_to_write, write_whole
    from trainer_hooks.checkpoint.placing import remove_folder
    from trainer_hooks.checkpoint.plain import encode_state, find_foreign
    from trainer_hooks.checkpoint.pruning import Entry, Rule, plan_pruning
    from trainer_hooks.checkpoint.remote import upload
    from trainer_hooks.checkpoint.safetensors_file import (
        dump_safetensors,
        is_safetensors,
        require_writable,
    )
    from trainer_hooks.checkpoint.seal import TAIL, Summary, read_summary
    from trainer_hooks.checkpoint.selection import IgnoreKeys, check_ignore_keys, leave_out
    from trainer_hooks.checkpoint.target import (
        exists,
        files_in,
        is_inside,
        is_remote,
        joined,
        located,
        name_of,
        remove,
        require_reachable,
    )
    from trainer_hooks.checkpoint.weights import load_weights, require_fitting

__all__ = [
    "FORMAT",
    "TAIL",
    "BackgroundSave",
    "BackgroundSaves",
    "Contents",
    "Difference",
    "Encoder",
    "Entry",
    "Fault",
    "How",
    "HyperParameters",
    "IgnoreKeys",
    "Kind",
    "NameClaim",
    "Rule",
    "Search",
    "Summary",
    "Tolerance",
    "UnusableFileError",
    "arguments_from",
    "arguments_of_init",
    "check_ignore_keys",
    "claim_name",
    "differences",
    "dtype_name",
    "dump_safetensors",
    "encode_state",
    "exists",
    "files_in",
    "find_foreign",
    "inspect_file",
    "is_folder",
    "is_inside",
    "is_lightning",
    "is_remote",
    "is_safetensors",
    "is_whole",
    "joined",
    "leave_out",
    "load_checkpoint",
    "load_parts",
    "load_weights",
    "located",
    "mapping",
    "name_of",
    "names_by_place",
    "place_in_words",
    "place_of",
    "plan_pruning",
    "read_checkpoint",
    "read_shards",
    "read_summary",
    "remove",
    "remove_folder",
    "require_fitting",
    "require_local",
    "require_reachable",
    "require_writable",
    "savable",
    "sections_of",
    "selected",
    "size_of_folder",
    "summarize",
    "tensor_bytes",
    "try_to_write",
    "upload",
    "verify_checkpoint",
    "verify_file",
    "write_checkpoint",
    "write_folder",
    "write_whole",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "BackgroundSave": "background",
            "BackgroundSaves": "background",
            "Contents": "inspection",
            "Difference": "difference",
            "Encoder": "encoding",
            "Entry": "pruning",
            "FORMAT": "migrations",
            "Fault": "inspection",
            "How": "difference",
            "HyperParameters": "hparams",
            "IgnoreKeys": "selection",
            "Kind": "inspection",
            "NameClaim": "parts",
            "Rule": "pruning",
            "Search": "find",
            "Summary": "seal",
            "TAIL": "seal",
            "Tolerance": "difference",
            "UnusableFileError": "inspection",
            "arguments_from": "hparams",
            "arguments_of_init": "hparams",
            "check_ignore_keys": "selection",
            "claim_name": "parts",
            "differences": "difference",
            "dtype_name": "contents",
            "dump_safetensors": "safetensors_file",
            "encode_state": "plain",
            "exists": "target",
            "files_in": "target",
            "find_foreign": "plain",
            "inspect_file": "inspection",
            "is_folder": "folder",
            "is_inside": "target",
            "is_lightning": "lightning",
            "is_remote": "target",
            "is_safetensors": "safetensors_file",
            "is_whole": "hparams",
            "joined": "target",
            "leave_out": "selection",
            "load_checkpoint": "loading",
            "load_parts": "loading",
            "load_weights": "weights",
            "located": "target",
            "mapping": "inspection",
            "name_of": "target",
            "names_by_place": "folder_reading",
            "place_in_words": "contents",
            "place_of": "lightning",
            "plan_pruning": "pruning",
            "read_checkpoint": "file",
            "read_shards": "folder_reading",
            "read_summary": "seal",
            "remove": "target",
            "remove_folder": "placing",
            "require_local": "folder_writing",
            "require_fitting": "weights",
            "require_reachable": "target",
            "require_writable": "safetensors_file",
            "savable": "hparams",
            "sections_of": "contents",
            "selected": "hparams",
            "size_of_folder": "folder",
            "summarize": "file",
            "tensor_bytes": "contents",
            "try_to_write": "parts",
            "upload": "remote",
            "verify_checkpoint": "file",
            "verify_file": "inspection",
            "write_checkpoint": "file",
            "write_folder": "folder_writing",
            "write_whole": "parts",
        },
    )
