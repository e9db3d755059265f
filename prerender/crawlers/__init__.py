"""Identifies crawlers: their names, their verification, and the actions of [triggers]."""
