"""Reading and checking the confidential table and the public codebooks, with errors that never show a confidential value."""
