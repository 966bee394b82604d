"""Measurements: what the engine takes, beside its targets and the bare libraries."""
