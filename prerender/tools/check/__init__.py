"""``prerender check``: compares what crawlers get of a site with what visitors see."""
