"""URLs and what names them: the AJAX crawling scheme, addresses, hosts, patterns. Pure values."""
