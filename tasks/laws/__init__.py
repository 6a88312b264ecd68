"""Noise laws, each one value: its samplers, its cost, its variance, and how far it goes."""
