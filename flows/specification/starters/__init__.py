"""What `trellis new` writes: a starter spec from the names of columns and a public codebook. Nothing here reads a row of the table."""
