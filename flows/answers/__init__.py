"""What commands answer from the store or from a published folder, as plain values, and the raise of a cap."""
