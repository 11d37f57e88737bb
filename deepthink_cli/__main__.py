"""The program: `deepthink`, or `python -m deepthink_cli`."""

from __future__ import annotations

from deepthink_cli.cli.process import leave_at_ctrl_c


def main() -> None:
    """Run the program; Ctrl-C also works while it is being imported."""
    leave_at_ctrl_c()
    from deepthink_cli.cli.main import main as program

    program()


if __name__ == "__main__":
    main()
