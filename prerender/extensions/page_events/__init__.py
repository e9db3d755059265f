"""Events of pages by webhook: a snapshot has changed, a page fails, works again, or is not found."""
