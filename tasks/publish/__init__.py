"""The published folder: tables, manifest, a README to hand on, and its verification."""
