"""What pages say to people, crawlers and screen readers, and what has changed in them."""
