"""The command line: one module a command; argument handling and exit codes only."""


def main() -> None:
    raise SystemExit("not built yet")
