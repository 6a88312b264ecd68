"""Drawing noise, once: the samplers, and the stage that measures true counts."""
