"""What the people who operate the proxy learn of it: records of requests and renders, and more."""
