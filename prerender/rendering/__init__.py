"""From a target to its snapshot: the origin's document, a pool of pages, the settled DOM."""
