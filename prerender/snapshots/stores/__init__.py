"""Where snapshots are kept: in memory, in a file, in Redis. store.py is what the others see of them."""
