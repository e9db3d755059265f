"""The commands of the report, a module each."""
