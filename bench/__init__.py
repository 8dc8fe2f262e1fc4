"""What rnnspec is measured with: `python -m bench SUBCOMMAND --help`, from the repository root."""
