"""The same as `concept-audit reproduce`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
