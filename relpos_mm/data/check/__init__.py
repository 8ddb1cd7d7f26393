"""Checks of data: whole sets from the command line, cheap rules at every start, every sample."""
