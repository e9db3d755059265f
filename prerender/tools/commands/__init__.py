"""The commands of the tools, a module each."""
