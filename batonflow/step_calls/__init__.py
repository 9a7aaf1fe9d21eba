"""Calls of steps: a function over many items, and questions to people."""
