"""What crawlers got, by day and by page, kept for months. An extension: nothing below imports it."""
