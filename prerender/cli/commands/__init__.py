"""The commands of the core, a module each."""
