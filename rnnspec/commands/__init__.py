"""The larger subcommands of `rnnspec`. Each has `run(args)`, which returns the exit code."""
