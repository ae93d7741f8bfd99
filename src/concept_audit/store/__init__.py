"""Files on disk: schemas, and the only code that writes under the outputs folder."""
