"""The browser's only network: which requests of a page are allowed, and where they go."""
