"""Durable runs: records, recovery from records, and inspection."""
