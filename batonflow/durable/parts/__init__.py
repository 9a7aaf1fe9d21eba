"""Parts: messages, results and long texts of a conversation, which are written once and referred to by number."""
