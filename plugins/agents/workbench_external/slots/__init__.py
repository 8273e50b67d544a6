"""Texts of an agent: templates, finding them in its requests, and replacing them."""
