"""Chromium as a component: its process, its pages, and the clock by which they settle."""
