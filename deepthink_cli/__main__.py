"""`python -m deepthink_cli` is the same program as `deepthink`."""

from deepthink_cli.cli.main import main

if __name__ == "__main__":
    main()
