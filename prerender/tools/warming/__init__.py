"""``prerender warm``: fills the cache of running proxies."""
