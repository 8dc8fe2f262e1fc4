"""The adapters, one file a package; `comparison` says what a file has."""
