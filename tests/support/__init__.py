"""Helpers of several tests: clients, servers and browsers."""
