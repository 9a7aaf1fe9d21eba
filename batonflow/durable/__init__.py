"""Runs that outlive their process: records, the way back from them, inspection."""
