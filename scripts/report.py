"""The same as `concept-audit report`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
