"""Draws noise, once per cell: the samplers, and the stage that measures true counts."""
