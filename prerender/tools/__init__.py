"""Tools behind the commands: check, warm, export, sitemap, llms and doctor."""
