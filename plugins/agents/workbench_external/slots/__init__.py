"""Texts of an agent: their templates, how they are found in its requests, and how they are replaced."""
