"""Tests of prerender/extensions/revalidation."""
