"""`mooncake te-bench`: how fast the transfer engine moves bytes here, beside what is possible.

Parts are imported by name, since only some of them need the native library.
"""
