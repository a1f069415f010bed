"""The command line tool `eagle-conformance`, one module a command. What it needs is the extra `cli`."""
