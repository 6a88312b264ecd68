"""Tables and public codebooks in; whatever is wrong with them is refused here, without showing a value."""
