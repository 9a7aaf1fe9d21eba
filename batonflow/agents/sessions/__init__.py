"""Sessions: conversations of many users with one agent, kept turn by turn in its store."""
