"""Formats of earlier versions."""
