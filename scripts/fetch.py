"""The same as `concept-audit fetch`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["fetch", *sys.argv[1:]]))
