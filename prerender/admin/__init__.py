"""What only the people who operate the proxy see, on a listener of its own."""
