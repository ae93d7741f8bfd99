"""Speed, memory and agreement of a GPU with the CPU: `python scripts/gpu_check.py --help`."""

import sys

from concept_audit.pipeline.gpu_check import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
