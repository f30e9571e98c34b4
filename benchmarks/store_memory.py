"""What both sides of store_driver.py agree on."""

SPAN_BYTES = 64 << 20
"""Memory that values come from and go to; they walk round it."""
