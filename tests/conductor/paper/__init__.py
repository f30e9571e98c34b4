"""Claims of the papers, one a test."""
