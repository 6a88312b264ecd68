"""The keys of a spec that say how useful released counts are: the section `utility`, and a module for each part of it."""
