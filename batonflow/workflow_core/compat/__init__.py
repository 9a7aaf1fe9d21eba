"""Forms that earlier versions documented, out of the engine's way."""
