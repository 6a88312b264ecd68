"""What a release says of its counts: one estimate for each family, asked alike while a folder is written and once it is published."""
