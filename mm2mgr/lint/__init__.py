"""Finds what is wrong in MirrorMaker set-ups: connectors in, findings with place, reason and fix out. Pure."""
