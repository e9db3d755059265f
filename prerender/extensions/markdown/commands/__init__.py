"""The commands of Markdown, a module each."""
