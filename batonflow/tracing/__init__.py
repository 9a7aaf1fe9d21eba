"""Observers of runs: spans, verbose output, and the export to OpenTelemetry."""
