"""The same as `concept-audit score`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["score", *sys.argv[1:]]))
