"""Content keys: the same settings, data and code give the same key, anything else another.

A run's key is a hash of its resolved config, its data set's fingerprint, the version of the stage
and a digest of the code that the stage reaches. An evaluation's key does the same for the
evaluation, so that an edited metric recomputes metrics and trains nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

__all__ = [
    "KEY_EXCLUSIONS",
    "canonical_json",
    "code_digest",
    "evaluation_key",
    "keyed_config",
    "reached_modules",
    "run_key",
    "targets_of",
]

_PACKAGE = "concept_audit"
_KEY_LENGTH = 16
_RUN_PARTS = ("config", "dataset", "stage_version", "code")
_EVALUATION_PARTS = ("run_key", "bundles", "evaluation", "stage_version", "code")

# Top-level config keys that cannot change a trained model. The list names what is left out, so a
# new key counts by default: forgetting it here costs a rerun, never a stale number.
KEY_EXCLUSIONS: tuple[str, ...] = (
    "paths",
    "logger",
    "trainer",
    "workers",
    "experiment_name",
    "artefact",
    "profile",  # leaves take its values by interpolation and are hashed resolved
    "evaluation",  # enters the evaluation key
    "resume",
    "launcher",
    "hydra",
)


def _plain(value: Any, where: str) -> Any:
    """`value` in JSON's own types; `where` is the dotted path for the error message."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"__float__": repr(value)}
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, dict):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(
                    f"{where or 'the top level'} must have text keys, got {key!r} of type "
                    f"{type(key).__name__}. Quote the key in the config."
                )
            plain[key] = _plain(item, f"{where}.{key}" if where else key)
        return plain
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{position}]") for position, item in enumerate(value)]
    raise TypeError(
        f"{where or 'the value'} must be text, a number, a list or a dict to enter a key, got "
        f"{type(value).__name__}. Resolve the config to plain containers first."
    )


def canonical_json(value: Any) -> str:
    """One text for equal values: sorted keys, no spaces, tuples as lists.

    `1` and `1.0` stay apart, since some options mean different things by them.

    Raises
    ------
    TypeError  on a set, an array, a config object or a key that is no text, naming its place.
    """
    return json.dumps(_plain(value, ""), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _key(kind: str, parts: Mapping[str, Any], needed: tuple[str, ...]) -> str:
    missing = [name for name in needed if parts.get(name) is None]
    if missing:
        raise ValueError(
            f"{kind} needs the parts {', '.join(needed)}, got "
            f"{', '.join(sorted(parts)) or 'none'}: {', '.join(missing)} missing. "
            "A key without it would reuse stale results."
        )
    return hashlib.sha256(canonical_json(dict(parts)).encode()).hexdigest()[:_KEY_LENGTH]


def run_key(parts: Mapping[str, Any]) -> str:
    """Key of a run from its config, data set fingerprint, stage version and code digest.

    Parameters
    ----------
    parts : has at least `config`, `dataset`, `stage_version`, `code`; further parts count too

    Returns
    -------
    16 hexadecimal digits.
    """
    return _key("run_key", parts, _RUN_PARTS)


def evaluation_key(parts: Mapping[str, Any]) -> str:
    """Key of an evaluation of a run.

    Parameters
    ----------
    parts : has at least `run_key`, `bundles` (split to SHA-256), `evaluation` (its resolved
        config), `stage_version`, `code`; further parts count too

    Returns
    -------
    16 hexadecimal digits.
    """
    return _key("evaluation_key", parts, _EVALUATION_PARTS)


def keyed_config(
    config: Mapping[str, Any], exclusions: Iterable[str] = KEY_EXCLUSIONS
) -> dict[str, Any]:
    """Part of a resolved config that decides what is trained: all but the excluded keys."""
    left_out = set(exclusions)
    return {name: value for name, value in config.items() if name not in left_out}


# Digest of the code


@dataclass(frozen=True)
class _Module:
    """What one source file says: its code without comments, and what it imports."""

    code_hash: str
    # (module, name) for `from module import name`; (module, None) for `import module`
    imports: tuple[tuple[str, str | None], ...]
    # lazy packages: public name -> dotted module that defines it
    lazy: Mapping[str, str]


_Stamp = tuple[int, int]  # modification time in ns, size
_parsed: dict[Path, tuple[_Stamp, _Module]] = {}
# What a digest was computed from, so that a sweep of many cells computes it once.
_digests: dict[tuple[Any, ...], tuple[dict[Path, _Stamp], str]] = {}


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


class _Stripper(ast.NodeTransformer):
    """Drops docstrings, bare strings and blocks that only type checkers read."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        if name == "TYPE_CHECKING":
            kept: list[ast.AST] = []
            for statement in node.orelse:
                visited = self.visit(statement)
                kept.extend(visited if isinstance(visited, list) else [visited] if visited else [])
            return kept
        return self.generic_visit(node)


def _lazy_names(tree: ast.Module, dotted: str) -> dict[str, str]:
    """Public names that a package loads on use, from its `_HOME` dictionary of names to modules."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "_HOME" for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Dict):
                return {
                    key.value: f"{dotted}.{home.value}"
                    for key, home in zip(value.keys, value.values, strict=True)
                    if isinstance(key, ast.Constant)
                    and isinstance(home, ast.Constant)
                    and isinstance(key.value, str)
                    and isinstance(home.value, str)
                }
    return {}


def _imports(tree: ast.Module, dotted: str, is_package: bool) -> Iterator[tuple[str, str | None]]:
    """First-party imports anywhere in a module, also inside functions."""
    parents = dotted.split(".") if is_package else dotted.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = parents[: len(parents) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield base, alias.name


def _parse(path: Path, dotted: str) -> _Module:
    """Read one source file, or take it from this process's memory if it has not changed."""
    stamp = _stamp(path)
    known = _parsed.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    tree = ast.parse(path.read_bytes(), filename=str(path))
    stripped = _Stripper().visit(tree)
    module = _Module(
        code_hash=hashlib.sha256(ast.dump(stripped).encode()).hexdigest(),
        imports=tuple(
            sorted(
                {
                    (base, name)
                    for base, name in _imports(stripped, dotted, path.name == "__init__.py")
                    if base.split(".")[0] == _PACKAGE
                },
                key=lambda pair: (pair[0], pair[1] or ""),
            )
        ),
        lazy=_lazy_names(stripped, dotted),
    )
    _parsed[path] = (stamp, module)
    return module


def _source(root: Path, dotted: str) -> Path | None:
    """Source file of a dotted first-party module, or None if there is none."""
    head, *rest = dotted.split(".")
    if head != _PACKAGE:
        return None
    base = root.joinpath(*rest)
    for candidate in (base / "__init__.py", base.with_suffix(".py") if rest else base):
        if candidate.is_file():
            return candidate
    return None


def _walk(module_names: Iterable[str], root: Path, exclude: Iterable[str]) -> dict[str, _Module]:
    """Every first-party module reached from the given ones without entering the excluded."""
    left_out = tuple(exclude)
    found: dict[str, _Module] = {}
    pending: list[str] = []
    for name in module_names:
        if name.split(".")[0] == _PACKAGE and _source(root, name) is None:
            raise ValueError(
                f"module_names must name modules of {_PACKAGE}, got {name!r}, which has no source "
                f"file under {root}. Check the spelling of the `_target_`."
            )
        pending.append(name)
    while pending:
        dotted = pending.pop()
        if dotted in found or any(_is_within(dotted, room) for room in left_out):
            continue
        path = _source(root, dotted)
        if path is None:
            continue  # another package's module
        module = _parse(path, dotted)
        found[dotted] = module
        for base, imported in module.imports:
            pending.extend(_reach(base, imported, root))
    return found


def _is_within(dotted: str, room: str) -> bool:
    return dotted == room or dotted.startswith(f"{room}.")


def _reach(base: str, name: str | None, root: Path) -> list[str]:
    """Modules that one import statement makes use of."""
    path = _source(root, base)
    if path is None:
        return []
    if name is not None and name != "*" and _source(root, f"{base}.{name}") is not None:
        base, name = f"{base}.{name}", None  # `from package import module`
        path = _source(root, base)
    lazy = _parse(path, base).lazy if path is not None else {}
    if name is None or name == "*":
        return [base, *lazy.values()]
    return [lazy.get(name, base)]


def _root(package_root: str | Path | None) -> Path:
    return Path(__file__).resolve().parents[1] if package_root is None else Path(package_root)


def reached_modules(
    module_names: Iterable[str],
    package_root: str | Path | None = None,
    *,
    exclude: Iterable[str] = (),
) -> tuple[str, ...]:
    """Dotted names of the modules that `code_digest` covers, sorted."""
    return tuple(sorted(_walk(module_names, _root(package_root), exclude)))


def code_digest(
    module_names: Iterable[str],
    package_root: str | Path | None = None,
    *,
    exclude: Iterable[str] = (),
) -> str:
    """Digest of the package's code that is reached from some of its modules.

    Parameters
    ----------
    module_names : dotted modules to start from: the stage and the module of every `_target_`.
        Modules of other packages are passed over; their versions stand in the manifest
    package_root : folder of `concept_audit`; default: the installed one
    exclude : modules or packages that are not entered, since they cannot move a number, such as
        progress bars

    Returns
    -------
    64 hexadecimal digits. Comments, docstrings and layout do not count. Imports are followed
    everywhere in a module, also inside functions, and through packages that load names on use;
    imports under `if TYPE_CHECKING` are not. A package's own file counts where a name is taken
    from it.

    Raises
    ------
    ValueError  if a first-party module has no source file.
    """
    root = _root(package_root)
    request = (root, tuple(sorted(set(module_names))), tuple(sorted(set(exclude))))
    known = _digests.get(request)
    if known is not None and _unchanged(known[0]):
        return known[1]
    modules = _walk(request[1], root, request[2])
    digest = hashlib.sha256()
    stamps = {}
    for name, module in sorted(modules.items()):
        digest.update(f"{name} {module.code_hash}\n".encode())
        path = _source(root, name)
        if path is not None:
            stamps[path] = _stamp(path)
    # Packages that load names on use decide what is reached without being part of it.
    stamps.update({path: known[0] for path, known in _parsed.items() if known[1].lazy})
    _digests[request] = (stamps, digest.hexdigest())
    return digest.hexdigest()


def _unchanged(stamps: Mapping[Path, _Stamp]) -> bool:
    try:
        return all(_stamp(path) == stamp for path, stamp in stamps.items())
    except FileNotFoundError:
        return False


def targets_of(config: Any) -> tuple[str, ...]:
    """First-party modules named by the `_target_` entries anywhere in a resolved config, sorted."""
    return tuple(sorted(set(_targets(config))))


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str) and target.split(".")[0] == _PACKAGE:
            yield _home_of(target)
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _targets(value)


def _home_of(target: str) -> str:
    """Module that defines a dotted class or function, also when a lazy package passes it on."""
    root = _root(None)
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        dotted = ".".join(parts[:length])
        path = _source(root, dotted)
        if path is not None:
            name = parts[length] if length < len(parts) else ""
            return _parse(path, dotted).lazy.get(name, dotted)
    return target
