"""From a target to its snapshot."""
