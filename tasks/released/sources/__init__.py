"""Where an estimate reads: the shards of a release that is being published, or a published folder."""
