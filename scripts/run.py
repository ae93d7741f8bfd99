"""The same as `concept-audit run`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
