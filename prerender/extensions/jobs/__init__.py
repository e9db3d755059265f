"""Renders lists of pages in the background: jobs of the API, and the sitemaps of the site."""
