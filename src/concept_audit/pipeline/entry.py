"""The console command `concept-audit`: one verb for each stage, each loaded only when called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

# verb -> module of `concept_audit.pipeline` with a main(argv), what it does, the extra it needs
VERBS: dict[str, tuple[str, str, str]] = {
    "run": (
        "run",
        "train and evaluate one model, a sweep, or the models of one figure or table",
        "pipeline",
    ),
    "reproduce": ("reproduce", "all figures and tables of the papers, then the report", "pipeline"),
    "report": ("report", "redraw figures, tables and the report from stored results", "pipeline"),
    "score": ("score", "leakage and disentanglement scores of arrays in a file", ""),
    "list": ("listing", "experiments, datasets, models and evaluations that exist", "pipeline"),
    "fetch": ("fetch", "download a dataset, check it, unpack it", "pipeline"),
    "show": ("show", "pictures of a dataset (data=...) or of a trained run (run=...)", "pipeline"),
    "submission": ("submission", "check or make a submission of explanations", "judge"),
    "judge": ("judge", "score the explanations of a submission by one judge", "judge"),
    "leaderboard": ("leaderboard", "a page that ranks judged submissions", "judge"),
    "study": ("study", "the web page on which people compare two explanations", "study"),
}


def _usage() -> str:
    lines = ["usage: concept-audit VERB [key=value ...]", ""]
    lines += [f"  {verb:<11} {what}" for verb, (_, what, _) in VERBS.items()]
    lines += [
        "",
        "examples",
        "  concept-audit run data=tabulartoy_d025 model=cbm_soft lambda_concept=0.1",
        "  concept-audit run experiment=leakage/fig06_supervision profile=smoke",
        "  concept-audit run -m model=cbm_soft,cbm_logit lambda_concept=0.1,1",
        "  concept-audit score predictions.npz",
        "",
        "concept-audit VERB --help tells more.",
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch to the stage; returns the exit status: 0 done, 1 something failed, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        from concept_audit import __version__

        print(__version__)
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        print(f"concept-audit: unknown verb {verb!r}.{hint}\n\n{_usage()}", file=sys.stderr)
        return 2
    module, _, extra = VERBS[verb]
    try:
        stage = importlib.import_module(f"concept_audit.pipeline.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("concept_audit") or not extra:
            raise
        print(
            f"concept-audit {verb} needs the package {error.name}: "
            f"pip install 'concept-audit[{extra}]'.",
            file=sys.stderr,
        )
        return 2
    try:
        return int(stage.main(rest))
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(
            "\nStopped. What is finished is kept; the same command goes on from there.",
            file=sys.stderr,
        )
        return 130
