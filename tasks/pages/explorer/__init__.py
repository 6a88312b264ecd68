"""The explorer: one page with which readers look areas up in a published folder, without a network or an installation."""
