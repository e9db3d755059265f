"""The public listener: what a client asks, what is decided about it, and how it is answered."""
