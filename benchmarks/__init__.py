"""Scripts that measure; each prints its table."""
