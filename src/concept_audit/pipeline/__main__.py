"""`python -m concept_audit.pipeline` is `concept-audit`, where no script was installed."""

import sys

from concept_audit.pipeline.entry import main

if __name__ == "__main__":
    sys.exit(main())
