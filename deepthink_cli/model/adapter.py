"""Find a LoRA adapter and read everything but its weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepthink_cli.errors import InputError, Problem, option
from deepthink_cli.io.hub import check_installed, forbidden_by, hub_errors, library_errors
from deepthink_cli.io.text import canonical_json
from deepthink_cli.model.fingerprint import contents_sha256, hub_commit
from deepthink_cli.model.location import Location, local_path
from deepthink_cli.model.options import POCKET, ModelOptions
from deepthink_cli.provenance import AdapterIdentity

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# They have no effect on the adapter's results, or depend on the library's version.
_VOLATILE = ("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision", "runtime_config")
# Fields that may be set: merged weights then give the same results as the adapter beside the model.
_MERGED = {
    *("alpha_pattern", "bias", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules"),
    *("fan_in_fan_out", "init_lora_weights", "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha"),
    *("lora_bias", "lora_dropout", "lora_ga_config", "megatron_core", "modules_to_save", "peft_type"),
    *("qalora_group_size", "r", "rank_pattern", "target_modules", "target_parameters", "task_type"),
    *("use_dora", "use_rslora", *_VOLATILE),
}


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: its identity, the folder of its files, and the model that it names as its base, if any."""

    identity: AdapterIdentity
    folder: Path
    base: str | None


def find_adapter(options: ModelOptions) -> Adapter | None:
    """The adapter of the options, downloaded if needed; None if they name none.

    Raises InputError if it cannot be found, is not a LoRA adapter of a causal language model, or cannot be merged.
    """
    if options.adapter is None:
        return None
    named = Problem.of("adapter", options.adapter)
    _check_options(options, named)
    files, identifier, revision = _files(options, named)
    fields = _fields(files[0], named)
    _refuse_other_kinds(fields, named)
    lasting = {name: _sorted(value) for name, value in fields.items() if name not in _VOLATILE}
    digest = hashlib.sha256(f"{canonical_json(lasting)}\n{contents_sha256(files[1:])}".encode()).hexdigest()
    base = fields.get("base_model_name_or_path")
    return Adapter(AdapterIdentity(identifier, revision, digest), files[0].parent, base if base else None)


def adapter_to_download(options: ModelOptions) -> bool:
    """Whether finding the adapter may download it: a hub id whose weights are not on this machine."""
    from transformers.utils.hub import cached_file

    name = options.adapter
    if name is None or not _is_hub_id(name) or forbidden_by(options.offline):
        return False
    source, _, revision = name.partition("@")
    named = {"revision": revision or "main", "local_files_only": True, "_raise_exceptions_for_missing_entries": False}
    return cached_file(source, WEIGHTS, **named, _raise_exceptions_for_connection_errors=False) is None


def refuse_adapter_as_model(location: Location, options: ModelOptions) -> None:
    """Raise InputError if a model's directory or repository is an adapter, or holds one that no option names."""
    if location.gguf is not None or location.id == POCKET:
        return
    config = _of_model(location, options, CONFIG)
    if config is None:
        return
    if _of_model(location, options, "config.json") is None:
        base = _fields(config, Problem.of("model", options.model)).get("base_model_name_or_path") or "BASE"
        raise InputError.of(
            "model",
            options.model,
            f"an adapter, not a model; use {option('model')} {base}, with this as its adapter",
        )
    if options.adapter is None:
        raise InputError.of(
            "model",
            options.model,
            f"holds an adapter beside the model ({CONFIG}); name it as the adapter, too, or remove it",
        )


def _check_options(options: ModelOptions, named: Problem) -> None:
    check_installed(named, "adapter", "peft", "accelerate")
    if options.quantize is not None:
        raise InputError(
            f"{named}: an adapter is merged into the weights, which {option('quantize')} {options.quantize} "
            f"rounds; omit {option('quantize')}"
        )
    if options.model == POCKET:
        raise InputError(
            named.because(f"{POCKET} has no adapters; name the adapter's base model with {option('model')}")
        )


def _files(options: ModelOptions, named: Problem) -> tuple[list[Path], str, str | None]:
    """The configuration and the weights of an adapter, its id and the commit of a hub repository."""
    from transformers.utils.hub import cached_file

    assert options.adapter is not None
    folder = local_path(options.adapter, named)
    if folder.is_dir():
        for name in (CONFIG, WEIGHTS):
            if not (folder / name).is_file():
                raise InputError(
                    named.because(f"no {name} in this directory; name one that peft wrote with save_pretrained")
                )
        resolved = folder.resolve()
        return [resolved / CONFIG, resolved / WEIGHTS], str(resolved), None
    if not _is_hub_id(options.adapter):
        raise InputError(named.because("no such directory; check the path, or give a hub id, with @REVISION if needed"))
    source, _, revision = options.adapter.partition("@")
    hint = "give a local directory"
    with (
        library_errors(named, f"check the name and its revision, or {hint}"),
        hub_errors(named, options.offline, hint),
    ):
        arguments = {"revision": revision or "main", "local_files_only": options.offline}
        paths = [Path(str(cached_file(source, name, **arguments))) for name in (CONFIG, WEIGHTS)]
    return paths, source, hub_commit(source, revision or None, CONFIG) or revision or None


def _is_hub_id(name: str) -> bool:
    source = name.partition("@")[0]
    return not (source.startswith((".", "/", "~")) or source.count("/") != 1 or Path(name).expanduser().exists())


def _fields(config: Path, named: Problem) -> dict[str, Any]:
    try:
        fields = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(named.because(f"its {CONFIG} is not JSON; get the whole adapter")) from error
    if not isinstance(fields, dict):
        raise InputError(named.because(f"its {CONFIG} is not a JSON object; get the whole adapter"))
    return fields


def _refuse_other_kinds(fields: dict[str, Any], named: Problem) -> None:
    kind, task = fields.get("peft_type"), fields.get("task_type")
    if kind != "LORA":
        reason = (
            "adds tokens of its own, which a memory cannot hold" if fields.get("num_virtual_tokens") else "not LoRA"
        )
        raise InputError(named.because(f"an adapter of type {kind}: {reason}; use a LoRA adapter"))
    if task not in (None, "CAUSAL_LM"):
        raise InputError(named.because(f"an adapter for {task}, not for a causal language model; use another adapter"))
    if others := sorted(name for name, value in fields.items() if value and name not in _MERGED):
        raise InputError(
            named.because(f"uses {', '.join(others)}, which cannot be merged into the weights; use another adapter")
        )


def _sorted(value: Any) -> Any:
    """A value of the configuration; names in order, because peft writes sets of them in any order."""
    return sorted(value) if isinstance(value, list) and all(isinstance(part, str) for part in value) else value


def _of_model(location: Location, options: ModelOptions, name: str) -> Path | None:
    """A file of a model's directory or repository; None if it is missing, or if that cannot be known."""
    from transformers.utils.hub import cached_file

    if location.is_local:
        path = Path(location.source) / name
        return path if path.is_file() else None
    found = cached_file(
        location.source,
        name,
        revision=options.revision or "main",
        local_files_only=options.offline,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
