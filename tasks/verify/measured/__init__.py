"""The checks of what follows from published noisy counts, by the way in which counts came from them."""
