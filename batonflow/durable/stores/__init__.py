"""Stores of runs: the protocol, SQLite, and memory."""
