"""`mooncake store bench`: how fast a store answers, and whether every byte of it is right.

Parts are imported by name, since only some of them need the native library.
"""
