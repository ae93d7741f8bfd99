"""Lightning modules and the bank that trains many small models at once."""
