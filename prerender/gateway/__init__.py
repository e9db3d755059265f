"""The browser's only network: what a page may ask for, and where it goes."""
