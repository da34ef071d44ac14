"""The command line without its script: ``python -m privopt``."""

from privopt.cli import app

if __name__ == "__main__":
    app(prog_name="privopt")
