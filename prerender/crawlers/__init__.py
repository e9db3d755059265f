"""Who asks: the names of crawlers, whether they are genuine, and what the site owner wants for each."""
