"""The same as `concept-audit judge`."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main(["judge", *sys.argv[1:]]))
