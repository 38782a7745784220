"""Annotated text and lists of mentions: brat, QUAERO, PubTator, tables of mentions and gold."""
