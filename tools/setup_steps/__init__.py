"""Parts of tools/bootstrap.py. Standard library only: they run before anything is installed."""
