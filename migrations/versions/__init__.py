"""Numbered revisions."""
