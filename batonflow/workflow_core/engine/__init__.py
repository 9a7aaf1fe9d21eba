"""The engine of a run: its state, the broker that decides and the runner that acts."""
