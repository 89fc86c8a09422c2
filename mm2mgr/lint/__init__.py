"""Finds what is wrong in MirrorMaker set-ups: values of connectors in, findings with place, reason and fix out. Pure."""
