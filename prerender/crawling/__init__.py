"""The crawler's side: who crawls, and what the site's owner wants to be done about it."""
